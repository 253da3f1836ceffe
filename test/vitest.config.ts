import { availableParallelism } from 'node:os'
import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    root: import.meta.dirname,
    include: ['**/*.test.ts'],
    // What takes minutes has a script of its own: npm run test:soak.
    exclude: process.env.SOAK ? [] : ['soak/**'],
    // Nobody waits that long where the code is right; a busy machine may.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // Two workers even on one core: most tests wait for sockets, not for the processor.
    maxWorkers: Math.max(2, availableParallelism()),
    coverage: { include: ['../src/**/*.ts'], allowExternal: true },
  },
})
