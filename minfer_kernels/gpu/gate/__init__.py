"""What the compiler makes of every kernel, for devices that needn't be here, against what the kernel promises."""
