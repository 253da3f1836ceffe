import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { lineWithCredential } from '../../../src/cli/local/unpassed-credential.ts'
import {
  describeServiceStatus,
  readServiceStatus,
} from '../../../src/cli/service/service-status.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

interface Shown {
  readonly load?: string
  readonly active?: string
  readonly sub?: string
  readonly text?: string
  readonly restarts?: number
}

/** As `systemctl show` prints it. */
const statusOf = ({ load = 'loaded', active = '', sub = '', text = '', restarts = 0 }: Shown) =>
  readServiceStatus(
    'device-agent',
    `NRestarts=${restarts}\nStatusText=${text}\nLoadState=${load}\nActiveState=${active}\nSubState=${sub}\n`,
  )

describe('service status', () => {
  it.each([
    [
      { active: 'active', sub: 'running', text: '1 of 2 tunnels work. a=b', restarts: 1 },
      'device-agent is active (running), restarted 1 time. 1 of 2 tunnels work. a=b',
    ],
    [
      { active: 'activating', sub: 'auto-restart', restarts: 14 },
      'device-agent is activating (auto-restart), restarted 14 times. See the log: journalctl --unit device-agent',
    ],
    // The sentence of a process that is gone is no news.
    [
      { active: 'inactive', sub: 'dead', text: 'stopping' },
      'device-agent is inactive (dead), restarted 0 times. Start it: systemctl start device-agent. See the log: journalctl --unit device-agent',
    ],
    [
      { load: 'not-found', active: 'inactive', sub: 'dead' },
      'device-agent is not installed. Run device-agent service install.',
    ],
  ])('says of %j: %s', (shown, sentence) => {
    expect(describeServiceStatus(statusOf(shown))).toBe(sentence)
  })

  it('says that systemd did not pass an authtoken that is on the device', () => {
    const file = join(temporaryFolder(), 'svc-authtoken')
    const line = 'No tunnels. No authtoken is set.'
    expect(lineWithCredential(line, file)).toBe(line)
    writeFileSync(file, 'some-authtoken\n')
    expect(lineWithCredential(line, file)).toBe(
      'No tunnels. systemd did not pass the authtoken. See sudo device-agent status.',
    )
    expect(lineWithCredential('All 2 tunnels work.', file)).toBe('All 2 tunnels work.')
  })

  it('says how a gateway is started', () => {
    const shown = 'NRestarts=0\nLoadState=loaded\nActiveState=inactive\nSubState=dead\n'
    expect(describeServiceStatus(readServiceStatus('device-gateway', shown))).toContain(
      ' Start it: systemctl start device-gateway.socket device-gateway. ',
    )
  })

  it('says how a gateway is installed', () => {
    const status = readServiceStatus('device-gateway', 'LoadState=not-found\n')
    expect(describeServiceStatus(status)).toBe(
      'device-gateway is not installed. Run device-agent service install --gateway.',
    )
  })

  it('is for programs, too', () => {
    const shown = { active: 'inactive', sub: 'dead', text: 'stopping', restarts: 3 }
    expect(statusOf(shown)).toEqual({
      service: 'device-agent',
      installed: true,
      active: false,
      state: 'inactive (dead)',
      restarts: 3,
      status: '',
    })
  })
})
