import { describe, expect, it } from 'vitest'
import {
  DEFAULT_UPSTREAM,
  type UpstreamSettings,
} from '../../../src/agent/upstreams/upstream-options.ts'
import { type Upstream, upstreamProblem } from '../../../src/agent/upstreams/upstream-state.ts'
import { commandRemedy } from '../../../src/cli/local/command-remedy.ts'
import { tunnelsCommand } from '../../../src/cli/local/tunnels.ts'

const SERVICE = 'https://nas.lan:5001'
const remedyOf = (
  upstream: Upstream,
  settings: Partial<UpstreamSettings> = {},
  service = SERVICE,
) => upstreamProblem(service, upstream, { ...DEFAULT_UPSTREAM, ...settings })?.remedy ?? ''

const ROWS: readonly (readonly [remedy: string, command: RegExp])[] = [
  [
    remedyOf('slow'),
    /, run device-agent tunnels set cam --upstream-timeout SECONDS with more than 60\.$/,
  ],
  [
    remedyOf('busy', { max_connections: 2 }),
    /tunnels set cam --max-connections COUNT with more than 2\.$/,
  ],
  [remedyOf('untrusted'), /Less secure: run device-agent tunnels set cam --no-verify-tls\.$/],
  [remedyOf('old_tls'), /run device-agent tunnels set cam --tls-min-version 1\.0\./],
  [
    remedyOf('wrong_protocol', {}, 'localhost:8443'),
    /^Run device-agent tunnels set cam https:\/\/localhost:8443\.$/,
  ],
  [
    remedyOf('garbage', {}, 'localhost:1'),
    /, run device-agent tunnels set cam https:\/\/localhost:1\. For gRPC, run device-agent tunnels set cam --http2\.$/,
  ],
  [remedyOf('down', {}, 'localhost:1'), /, or run device-agent tunnels set cam PORT with the port/],
]

describe('a remedy on the command line', () => {
  it.each(ROWS)('%s', (remedy, command) => {
    const shown = commandRemedy(remedy, 'cam')
    expect(shown).toMatch(command)
    expect(shown).not.toMatch(/upstream\.\w/)
    expect(commandRemedy(remedy)).toContain('tunnels set NAME ')
  })

  it('names only options that the command has', () => {
    const { signal: stop } = new AbortController()
    const context = { environment: {}, stdout: process.stdout, stderr: process.stderr, stop }
    const set = tunnelsCommand(context).commands.find((it) => it.name() === 'set')
    const known = new Set(set?.options.map(({ long }) => long))
    const named = ROWS.flatMap(([remedy]) => commandRemedy(remedy).match(/--[a-z0-9-]+/g) ?? [])
    expect(named.filter((option) => !known.has(option))).toEqual([])
    expect(named).toHaveLength(5)
  })
})
