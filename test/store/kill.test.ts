import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { openNotes } from '../helpers/open-store.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const WRITER = join(import.meta.dirname, 'note-writer.ts')
const KILLS = 4

/** Lets a process write for a while, kills it, and answers the last number it had printed. */
async function writeUntilKilled(path: string, rows: number): Promise<number> {
  const child = spawn(process.execPath, ['--import', 'tsx', WRITER, path], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  let printed = ''
  child.stdout.setEncoding('utf8').on('data', (text) => {
    printed += text
    if (printed.split('\n').length > rows) child.kill('SIGKILL')
  })
  await once(child, 'close')
  // The last line may be cut in the middle of its number.
  return Number(printed.split('\n').at(-2))
}

describe('a process killed while it writes', () => {
  it('loses nothing that was acknowledged, and nothing comes back', async () => {
    const folder = temporaryFolder()
    for (let kill = 1; kill <= KILLS; kill += 1) {
      const acknowledged = await writeUntilKilled(join(folder, 'notes.db'), kill * 70)
      const { database } = openNotes(folder)
      const ids = database
        .prepare<[number], { id: number }>('SELECT id FROM notes WHERE id < ?')
        .all(acknowledged)
        .map(({ id }) => id)
      const written = Array.from({ length: acknowledged - 1 }, (_, n) => n + 1)
      expect(ids).toEqual(written.filter((id) => id % 3 !== 2))
      expect(database.report()).toMatchObject({ healing: undefined, fault: undefined })
      database.close()
    }
  })
})
