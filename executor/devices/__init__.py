"""Real devices under the engine: memory as one arena per GPU, copies and runs on streams, a clock on the wall."""
