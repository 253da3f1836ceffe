import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { eventually } from '../helpers/eventually.ts'
import { hasEnded, ReloadableProgram } from '../helpers/reloadable-program.ts'
import { canMount } from '../helpers/small-disk.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const ROOT = join(import.meta.dirname, '../..')
const VERSION = '/opt/device-agent/versions/9.0.0'
const VERSIONS = { from: '1.0.0', to: '9.0.0', fromFolder: null, toFolder: 'versions/9.0.0' }

/** Where updates lie, for this process and its children alone: this program is one of them. */
const ENTER = `
mount -t tmpfs tmpfs /opt
mkdir -p ${VERSION}
mount --bind "$0" ${VERSION}
cp "$1" /opt/device-agent/state.json
shift
exec "$@"
`

/** An agent that an update is under way for, which is in this state. */
async function agentOnTrial(state: object) {
  const folder = temporaryFolder()
  const statePath = join(folder, 'state.json')
  writeFileSync(statePath, JSON.stringify({ ...VERSIONS, ...state }))
  const node = [process.execPath, `${VERSION}/dist/main.js`]
  const agent = new ReloadableProgram(join(folder, 'notify'), {
    command: ['unshare', '--mount', 'sh', '-euc', ENTER, ROOT, statePath, ...node],
    args: ['run', '--json'],
    cwd: folder,
    env: { LOG_LEVEL: 'info' },
  })
  onTestFinished(() => agent.stop())
  await agent.program.ready()
  return agent
}

describe.skipIf(!canMount())('a reload of the agent while an update is under way', () => {
  it.each([
    [
      'is about to be tried',
      { state: 'prepared', bootId: 'b' },
      /The trial of version 9\.0\.0 is about to start/,
    ],
    [
      'is on trial',
      { state: 'trying', dataDir: '/data', untilMs: 2 ** 52 },
      /Version 9\.0\.0 is on trial/,
    ],
  ])('is refused when a version %s', async (_, state, reason) => {
    const agent = await agentOnTrial(state)
    agent.signal('SIGHUP')
    await eventually(() => {
      expect(agent.told.at(-1)).toMatch(/^READY=1\nSTATUS=.*the reload was refused: /s)
    })
    expect(agent.told.at(-1)).toMatch(reason)
    expect(agent.told.at(-1)).toContain('The update restarts the agent.')
    expect(hasEnded(agent.pid)).toBe(false)
  })
})
