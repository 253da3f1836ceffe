/**
 * Runs `check` until it stops throwing, and fails with its last error after `withinMs`. It asks less often the
 * longer it takes: many tests wait for seconds, side by side.
 */
export async function eventually<T>(check: () => T | Promise<T>, withinMs = 60_000): Promise<T> {
  const startedAt = performance.now()
  for (;;) {
    try {
      return await check()
    } catch (error) {
      const waitedMs = performance.now() - startedAt
      if (waitedMs > withinMs) throw error
      await new Promise((resolve) => setTimeout(resolve, Math.min(10 + waitedMs / 50, 50)))
    }
  }
}
