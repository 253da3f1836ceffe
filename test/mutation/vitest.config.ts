import { join } from 'node:path'
import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'
import { ROOMS } from './rooms.ts'

const tests = ROOMS[process.env.MUTATION_ROOM ?? '']?.tests ?? []

/** The globs of a list, those with `{…}` as one for each of what stands there. */
const globs = tests.flatMap((glob) => {
  const [, before, names, after] = /^(.*)\{(.*)\}(.*)$/.exec(glob) ?? []
  return names === undefined ? [glob] : names.split(',').map((name) => before + name + after)
})

/** Where a file stands in the room's table; what `*` stands for has one place. */
function placeOf({ moduleId }: TestSpecification): number {
  return globs.findIndex((glob) => moduleId.includes(`/test/${glob.split('*', 1)[0]}`))
}

/** In the order of the room's table, shorter files first; found are they in any order. */
class QuickestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    return [...files].sort((a, b) => placeOf(a) - placeOf(b))
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
