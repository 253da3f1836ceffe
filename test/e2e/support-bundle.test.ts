import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { extract } from 'tar-stream'
import { describe, expect, it, onTestFinished } from 'vitest'
import { eventually } from '../helpers/eventually.ts'
import { Program, runProgram } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

/** Each of them is planted somewhere; none may be found, in whatever form. */
const CANARIES = {
  authtoken: 'canary0authtoken0Qx7',
  apiToken: 'canary0api0token0Wm3-of-the-owner',
  apiKey: 'canary0api0key0Zt9',
  password: 'canary+pass/word=Lp5',
  webhook: 'canary0webhook0secret0Rb2',
  header: 'canary header value Hk8',
  query: 'canary0query0token0Nd4',
  cookie: 'canary0cookie0Vs6',
} as const
const POLICY = {
  on_http_request: [
    { actions: [{ type: 'basic-auth', config: { credentials: [`admin:${CANARIES.password}`] } }] },
    {
      actions: [
        { type: 'verify-webhook', config: { provider: 'github', secret: CANARIES.webhook } },
        { type: 'add-headers', config: { headers: { 'x-inner': CANARIES.header } } },
      ],
    },
  ],
}
const SETTINGS = {
  SVC_SERVER_ADDR: '127.0.0.1:1',
  SVC_AUTHTOKEN: CANARIES.authtoken,
  SVC_API_KEY: CANARIES.apiKey,
  AGENT_API_TOKEN: CANARIES.apiToken,
}

/** Lines of a log that should never have been written like this. */
function carelessLog(): string {
  const { authtoken, apiKey, password, query, cookie } = CANARIES
  const basic = Buffer.from(`admin:${password}`).toString('base64')
  return [
    { msg: `the service says: Your authtoken: ${authtoken}` },
    { msg: 'request', headers: { authorization: `Basic ${basic}` } },
    { msg: 'request', path: `/a?access_token=${query}&x=1`, cookie: `sid=${cookie}` },
    { msg: `redirect to /b?next=${encodeURIComponent(`/?p=${password}`)}` },
    { msg: `key ${Buffer.from(apiKey).toString('base64')}` },
    { msg: 'nothing special' },
  ]
    .map((line) => JSON.stringify({ level: 'info', time: '2026-11-22T10:57:14.000Z', ...line }))
    .map((line) => `${line}\n`)
    .join('')
}

async function readBundle(path: string): Promise<Record<string, string>> {
  const parts: Record<string, string> = {}
  const archive = extract()
  archive.end(gunzipSync(readFileSync(path)))
  for await (const entry of archive) {
    const chunks: Buffer[] = []
    for await (const chunk of entry) chunks.push(chunk as Buffer)
    parts[entry.header.name.replace(/^[^/]+\//, '')] = Buffer.concat(chunks).toString()
  }
  return parts
}

/** Where a secret stands, in any of the forms that it may have on its way. */
function found(parts: Record<string, string>, secret: string): string[] {
  const base64 = [0, 1, 2].map((offset) =>
    Buffer.concat([Buffer.alloc(offset), Buffer.from(secret)])
      .toString('base64')
      .slice(4, -4),
  )
  const forms = [secret, encodeURIComponent(secret), JSON.stringify(secret).slice(1, -1), ...base64]
  return Object.entries(parts).flatMap(([name, text]) =>
    forms.filter((form) => text.toLowerCase().includes(form.toLowerCase())).map(() => name),
  )
}

async function startDevice() {
  const folder = temporaryFolder()
  writeFileSync(join(folder, 'agent.log'), carelessLog())
  writeFileSync(join(folder, '.env'), 'AGENT_MAX_TUNNELS=7\n')
  const program = new Program({ args: ['run', '--json'], cwd: folder, env: SETTINGS })
  onTestFinished(async () => void (await program.end()))
  await program.ready()
  const run = (...args: string[]) => runProgram({ args, cwd: folder, env: SETTINGS })
  writeFileSync(join(folder, 'policy.json'), JSON.stringify(POLICY))
  await run('tunnels', 'add', 'cam.site.test', '8001', '--policy', 'policy.json')
  await eventually(async () => {
    expect((await run('status')).stdout).toContain('cam.site.test')
  })
  const bundle = async (...args: string[]) => {
    const { code, stdout, stderr } = await run('support-bundle', 'b.tar.gz', ...args)
    expect([code, stderr]).toEqual([0, ''])
    return { stdout, parts: await readBundle(join(folder, 'b.tar.gz')) }
  }
  return { folder, program, run, bundle }
}

function expectNoSecret(parts: Record<string, string>) {
  for (const [what, secret] of Object.entries(CANARIES)) {
    expect(found(parts, secret), what).toEqual([])
  }
}

describe('device-agent support-bundle', () => {
  it('writes one archive for its owner alone, with all that helps and no secret', async () => {
    const { folder, bundle, run } = await startDevice()
    const { stdout, parts } = await bundle('--log-file', 'agent.log')
    expect(stdout).toContain('Wrote b.tar.gz: README.txt, doctor.txt')
    expect(statSync(join(folder, 'b.tar.gz')).mode & 0o777).toBe(0o600)
    expect(Object.keys(parts)).toEqual([
      'README.txt',
      'doctor.txt',
      'doctor.json',
      'status.json',
      'settings.json',
      'versions.json',
      'database.json',
      'log.jsonl',
    ])
    expectNoSecret(parts)
    expect(parts['doctor.txt']).toMatch(/^✗ tcp 127\.0\.0\.1:1: /m)
    const status = JSON.parse(parts['status.json'] ?? '')
    expect(status.tunnels[0]).toMatchObject({
      domain: 'cam.site.test',
      state: 'waiting',
      policy_sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
    })
    const settings = JSON.parse(parts['settings.json'] ?? '')
    expect(settings).toEqual(
      expect.arrayContaining([
        { name: 'SVC_SERVER_ADDR', value: '127.0.0.1:1', source: 'environment' },
        { name: 'SVC_AUTHTOKEN', value: '[secret]', source: 'environment' },
        { name: 'AGENT_API_TOKEN', value: '[secret]', source: 'environment' },
        { name: 'AGENT_MAX_TUNNELS', value: '7', source: '.env' },
        { name: 'AGENT_DRAIN_SECONDS', value: '10', source: 'default' },
      ]),
    )
    const { checks, files } = JSON.parse(parts['database.json'] ?? '')
    expect(checks[0]).toMatchObject({ file: 'agent.db', result: 'ok', rows: { tunnels: 1 } })
    expect(files.map(({ name }: { name: string }) => name)).toContain('agent.db')
    expect(JSON.parse(parts['versions.json'] ?? '').running_agent.node).toBe(process.version)
    expect(parts['log.jsonl']).toContain('nothing special')
    const again = await run('support-bundle', 'b.tar.gz')
    expect([again.code, again.stderr]).toEqual([
      1,
      expect.stringContaining('the file already exists'),
    ])
  })

  it('has the log of the running agent where nobody names another', async () => {
    const { bundle } = await startDevice()
    const { parts } = await bundle('--json')
    expect(parts['log.jsonl']).toContain('"msg":"agent is up"')
    expectNoSecret(parts)
  })

  it('works when the agent is down, and says what it could not look at', async () => {
    const { program, bundle, folder } = await startDevice()
    await program.end('SIGKILL')
    const wal = () => readFileSync(join(folder, 'data/agent.db-wal')).length
    const before = wal()
    const { parts, stdout } = await bundle('--log-file', 'agent.log')
    expect(stdout).toMatch(/^Not included:\n {2}status\.json: The agent is not running/m)
    expect(Object.keys(parts)).not.toContain('status.json')
    expect(parts['problems.txt']).toContain('status.json: The agent is not running')
    expect(parts['doctor.txt']).toContain('✗ agent: ')
    expect(JSON.parse(parts['database.json'] ?? '').checks[0]).toMatchObject({
      result: 'ok',
      rows: { tunnels: 1 },
    })
    expect(wal()).toBe(before)
    expectNoSecret(parts)
  })

  it('works with settings that are wrong, and does not repeat them', async () => {
    const folder = temporaryFolder()
    const env = { ...SETTINGS, AGENT_MAX_TUNNELS: 'many', AGENT_TOKENX: CANARIES.query }
    const { code } = await runProgram({ args: ['support-bundle', 'b.tar.gz'], cwd: folder, env })
    expect(code).toBe(0)
    const parts = await readBundle(join(folder, 'b.tar.gz'))
    expect(parts['doctor.txt']).toMatch(/^✗ settings: /m)
    expect(parts['problems.txt']).toBeDefined()
    expectNoSecret(parts)
  })

  it('leaves nothing behind where it cannot be written', async () => {
    const { run } = await startDevice()
    const { code, stderr } = await run('support-bundle', 'no-folder/b.tar.gz')
    expect([code, stderr]).toEqual([
      1,
      expect.stringContaining('Cannot write no-folder/b.tar.gz: ENOENT'),
    ])
  })
})
