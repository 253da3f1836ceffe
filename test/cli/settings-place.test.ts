import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { StartError } from '../../src/base/app-error.ts'
import { readHandover } from '../../src/cli/service/handover-file.ts'
import { lateCaWarning, readSettingsFile, withPlaces } from '../../src/cli/settings-place.ts'
import { parseConfig } from '../../src/config.ts'
import { runProgram } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

function errorOf(environment: Record<string, string>, files: readonly string[]): string {
  try {
    parseConfig(environment)
  } catch (error) {
    const placed = withPlaces(error, environment, files)
    expect(placed).toBeInstanceOf(StartError)
    return (placed as StartError).message
  }
  return ''
}

function fileOf(text: string): string {
  const path = join(temporaryFolder(), 'agent.env')
  writeFileSync(path, text)
  return path
}

describe('withPlaces', () => {
  it('names file and line of each wrong setting', () => {
    const path = fileOf('# SVC_CA=x\nLOG_LEVEL=info\n\n  export SVC_CA = x\nAGENT_LISTEN=7040:\n')
    const message = errorOf({ SVC_CA: 'x', AGENT_LISTEN: '7040:' }, ['/no/such/file', path])
    expect(message.split('\n')).toEqual([
      expect.stringMatching(`^${path}:5: AGENT_LISTEN must `),
      `${path}:4: Unknown setting SVC_CA. Did you mean SVC_CA_CERT?`,
    ])
  })

  it('names the last line of a setting, and the first file', () => {
    const first = fileOf('LOG_LEVEL=info\r\nLOG_LEVEL=loud\r\n')
    const second = fileOf('LOG_LEVEL=loud\n')
    expect(errorOf({ LOG_LEVEL: 'loud' }, [first, second])).toMatch(`${first}:2: LOG_LEVEL must`)
  })

  it('finds a wrong entry of AGENT_FORWARD_ALLOW before the agent is built', () => {
    const allow = 'nas.lan, https://cam.local:9103'
    const path = fileOf(`LOG_LEVEL=info\nAGENT_FORWARD_ALLOW=${allow}\n`)
    expect(errorOf({ AGENT_FORWARD_ALLOW: allow }, [path])).toBe(
      `${path}:2: AGENT_FORWARD_ALLOW: https://cam.local:9103 is not a host or CIDR with an optional :port: write cam.local:9103.`,
    )
  })

  it('names no file that has another value, because the environment wins', () => {
    const path = fileOf('LOG_LEVEL=info\n')
    expect(errorOf({ LOG_LEVEL: 'loud' }, [path])).toMatch(/^LOG_LEVEL must/)
  })

  it('names a file whose setting is missing in the environment of this process', () => {
    const path = fileOf('\nSVC_AUTHTOKN=x\n')
    expect(() => readHandover(path)).toThrow(`${path}:2: Unknown setting SVC_AUTHTOKN.`)
  })

  it('leaves other errors unchanged', () => {
    const error = new StartError('No tunnel web.')
    expect(withPlaces(error, {})).toBe(error)
  })
})

describe('readSettingsFile', () => {
  it.each([
    'AGENT_LISTEN 127.0.0.1:7050',
    '  export AGENT_LISTEN 127.0.0.1:7050',
    '- AGENT_LISTEN=127.0.0.1:7050',
    '=AGENT_LISTEN',
  ])('refuses %s, which sets nothing', (line) => {
    const path = fileOf(`# AGENT_LISTEN x\nLOG_LEVEL=info\r\n${line}\nAGENT_DOMAIN=a.test\n`)
    expect(() => readSettingsFile(path)).toThrow(
      new StartError(
        `${path}:3: The line of AGENT_LISTEN is not a setting. Write AGENT_LISTEN=VALUE.`,
      ),
    )
  })

  it('takes comments, quotes, exports and the lines of other programs', () => {
    const lines = [
      '\ufeff# AGENT_LISTEN 1, do not',
      '; AGENT_LISTEN 1',
      'set -a',
      ' export  SVC_AUTHTOKEN = "one # AGENT_X 2" # AGENT_Y 3',
      'export SVC_AUTHTOKEN',
      "GATEWAY_PUBLIC_NAMES='a",
      'GATEWAY_DOMAIN b',
      "c'",
      'AGENT_LISTEN: 127.0.0.1:1',
      'AGENT_DOMAIN=',
      "LOG_LEVEL=it's # a comment",
      '',
    ]
    expect(readSettingsFile(fileOf(lines.join('\n')))).toEqual({
      SVC_AUTHTOKEN: 'one # AGENT_X 2',
      GATEWAY_PUBLIC_NAMES: 'a\nGATEWAY_DOMAIN b\nc',
      AGENT_LISTEN: '127.0.0.1:1',
      AGENT_DOMAIN: '',
      LOG_LEVEL: "it's",
    })
    expect(readSettingsFile('/no/such/file')).toEqual({})
  })
})

it('warns of a CA in .env, which Node.js does not see', () => {
  const before = process.cwd()
  onTestFinished(() => process.chdir(before))
  process.chdir(temporaryFolder())
  expect(lateCaWarning({})).toBeUndefined()
  writeFileSync('.env', 'NODE_EXTRA_CA_CERTS=ca.pem\n')
  expect(lateCaWarning({})).toMatch(/^NODE_EXTRA_CA_CERTS has no effect in \.env: /)
  expect(lateCaWarning({ NODE_EXTRA_CA_CERTS: '/etc/ca.pem' })).toBeUndefined()
})

it('shows the line of .env for every command', async () => {
  const cwd = temporaryFolder()
  writeFileSync(join(cwd, '.env'), 'AGENT_DATA_DIR=data\nGATEWAY_OUTBOUND_ALOW=localhost\n')
  const text = '.env:2: Unknown setting GATEWAY_OUTBOUND_ALOW. Did you mean GATEWAY_OUTBOUND_ALLOW?'
  const list = await runProgram({ args: ['tunnels', 'list', '--json'], cwd })
  expect(list.stderr).toBe(`device-agent: ${text}\n`)
  expect(JSON.parse(list.stdout)).toEqual({ error: text })
  const doctor = await runProgram({ args: ['doctor'], cwd })
  expect(doctor.stdout).toContain(text)
})
