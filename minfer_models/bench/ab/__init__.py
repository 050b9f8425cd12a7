"""`minfer-bench ab MODEL`: two sides that differ in something named, measured in turns.

A side is a set of settings, a git revision, or both. `command` reads what is asked for, `compare` measures it, `plans`
and `tokens` say what differs besides the speed. Sides run in this process (`local`); as soon as a revision is named,
each runs in a process of its own (`remote`, `worker`) over its own worktree (`worktrees`).
"""
