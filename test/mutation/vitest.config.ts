import { join } from 'node:path'
import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'
import { ROOMS } from './rooms.ts'

const tests = ROOMS[process.env.MUTATION_ROOM ?? '']?.tests ?? []

/** In the order of the room's table, shorter files first. */
class QuickestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    return files
  }
}

export default defineConfig({
  test: {
    root: join(import.meta.dirname, '..'),
    include: [...tests],
    // Enough for each change to be met, and not the hours that all of them would take.
    env: { EXCHANGE_SCHEDULES: '300', STREAM_SCHEDULES: '15' },
    // Below the time limit of a mutant: what hangs ends as a failed test, which costs no new process.
    testTimeout: 10_000,
    sequence: { sequencer: QuickestFirst },
  },
})
