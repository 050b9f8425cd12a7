# shellcheck shell=bash
# Sourced by demo, test and check, from the repository root. Kept to bash 3.2, which macOS ships.

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "$(basename "$0"): $*"
  exit 1
}

# The command as one would type it, then the command.
run() {
  local word line="+"
  for word in "$@"; do
    case "$word" in
      "" | *[!A-Za-z0-9_./=:,+@%-]*) line="$line \"$word\"" ;;
      *) line="$line $word" ;;
    esac
  done
  say "$line"
  "$@"
}

find_python() {
  local candidate
  for candidate in python3.13 python3.12 python3.11 python3; do
    # a name on PATH may be a version manager's shim without that version behind it: ask it
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  fail "minfer needs Python 3.11 or newer, and none of python3.13, python3.12, python3.11, python3 is one." \
    "Install it (https://www.python.org/downloads/, or your package manager) and run this again."
}

ensure_venv() {
  if .venv/bin/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then return; fi
  local python
  python=$(find_python) || exit 1
  run "$python" -m venv --clear .venv ||
    fail "no virtual environment could be made (on Debian and Ubuntu: apt install python3-venv)"
}

# What an installed environment depends on: pyproject.toml, the Python, and the place of this checkout.
environment_key() {
  .venv/bin/python -c '
import hashlib, os, sys
state = [open("pyproject.toml", "rb").read(), sys.version.encode(), os.getcwd().encode()]
print(hashlib.sha256(b"\0".join(state)).hexdigest())'
}

is_installed() { [ "$(cat ".venv/.minfer-$1" 2>/dev/null)" = "$2" ]; }

ensure_core() {
  ensure_venv
  local key
  key=$(environment_key)
  if is_installed core "$key" || is_installed dev "$key"; then return; fi
  say "installing minfer, numpy, numba and what else it needs into .venv: about half a minute, quiet until it's done"
  run .venv/bin/python -m pip install -q --disable-pip-version-check -e . || fail "the installation failed (see above)"
  printf '%s\n' "$key" >.venv/.minfer-core
}

ensure_dev() {
  ensure_venv
  local key
  key=$(environment_key)
  if is_installed dev "$key"; then return; fi
  .venv/bin/python -m tools.cpu_torch install || exit 1
  run .venv/bin/python -m pip install --disable-pip-version-check -e ".[dev]" || fail "the installation failed (see above)"
  .venv/bin/python -m tools.cpu_torch check || exit 1
  printf '%s\n' "$key" >.venv/.minfer-dev
}
