import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { createProgram } from '../../src/cli/program.ts'
import { LossRecord } from '../../src/store/loss-record.ts'
import { openGatewayStores } from '../helpers/gateway-stores.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const HEALING = {
  damage: 'corrupt',
  copy: 'backup',
  restoredFrom: 0,
  missing: 3,
  mayBeMore: false,
} as const

/** Runs the program in this process; what it wrote to stdout. */
async function run(args: string[], environment: Record<string, string>): Promise<string> {
  const stdout = new PassThrough({ encoding: 'utf8' })
  const context = { environment, stdout, stderr: stdout, stop: new AbortController().signal }
  await createProgram(context).parseAsync(args, { from: 'user' })
  return stdout.read() ?? ''
}

describe('device-agent storage confirm', () => {
  it('is seen by the process that has the database open', async () => {
    const { database, folder } = openGatewayStores(temporaryFolder())
    new LossRecord(`${folder}/gateway.db`).add(HEALING, 1_000)
    expect(database.report().lossProblem).toContain('3 changes may be missing')
    const settings = { GATEWAY_DATA_DIR: folder }
    expect(await run(['storage', 'confirm', '--gateway'], settings)).toBe(
      'Confirmed: the database was damaged: 3 changes may be missing (restored from a backup of 1970-01-01T00:00:00.000Z).\n',
    )
    expect(database.report().lossProblem).toBeUndefined()
    expect(await run(['storage', 'confirm', '--gateway'], settings)).toBe('Nothing to confirm.\n')
  })

  it('answers one JSON line for programs, and takes the folder as an option', async () => {
    const { folder } = openGatewayStores(temporaryFolder())
    new LossRecord(`${folder}/gateway.db`).add(HEALING, 1_000)
    const args = ['storage', 'confirm', '--gateway', '--data-dir', folder, '--json']
    const answer = { database: `${folder}/gateway.db`, confirmed: 1 }
    expect(JSON.parse(await run(args, {}))).toEqual(answer)
  })

  it('says where it looked when there is no database', async () => {
    const folder = temporaryFolder()
    await expect(run(['storage', 'confirm', '--data-dir', folder], {})).rejects.toThrow(
      `No agent.db found in ${folder}. Set --data-dir.`,
    )
  })
})
