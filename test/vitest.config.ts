import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { defineConfig } from 'vitest/config'
import { SlowFirst } from './slow-first.ts'

export default defineConfig({
  test: {
    // The code below `src` has to lie below the root: coverage leaves out what does not.
    root: join(import.meta.dirname, '..'),
    dir: import.meta.dirname,
    include: ['**/*.test.ts'],
    // What takes minutes has a script of its own: npm run test:soak.
    exclude: process.env.SOAK ? [] : ['soak/**'],
    // Nobody waits that long where the code is right; a busy machine may.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    expect: { poll: { timeout: 60_000 } },
    // Two more than there are cores: most tests wait for sockets, not for the processor.
    maxWorkers: availableParallelism() + 2,
    sequence: { sequencer: SlowFirst },
    // A worker loads what is tested once, not for each file: a third of the processor time of a run.
    isolate: false,
    coverage: {
      include: ['src/**/*.ts'],
      reporter: ['text-summary', 'html'],
      reportOnFailure: true,
      // A little under what the suite reaches. The command line and the roots run in child processes
      // alone, which this does not see: e2e tests hold those.
      thresholds: {
        'src/{agent,api,base,gateway,http,muxado,policy,store}/**': { lines: 98, branches: 92 },
      },
    },
  },
})
