// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { runProgram } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const LIMITED = `on_http_request:
  - name: limit
    actions:
      - type: rate-limit
        config:
          name: two a minute
          algorithm: sliding_window
          capacity: 2
          rate: 60s
          bucket_key:
            - conn.client_ip
  - name: secret
    expressions:
      - req.url.path == '/secret'
    actions:
      - type: deny
        config: { status_code: 404 }
`

const BROKEN = `on_http_request:
  - actions:
      - type: rate-limit
        config: { name: x, algorithm: leaky, capacity: 0, rate: 61s, bucket_key: [conn.client] }
      - type: fly
  - name: [limit]
    expressions: [req.hots == 'a']
    actions:
      - type: custom-response
        config:
          status_code: teapot
          body: "\${req.nope} of \${req.host"
on_http_response: none
`

async function policy(content: string, ...args: string[]) {
  const folder = temporaryFolder()
  writeFileSync(join(folder, 'policy.yaml'), content)
  return runProgram({ args: ['policy', ...args], cwd: folder })
}

describe('policy check', () => {
  it('says ok to a good file', async () => {
    const { code, stdout } = await policy(LIMITED, 'check', 'policy.yaml')
    expect([code, stdout]).toEqual([0, 'policy.yaml: ok\n'])
  })

  it('names every problem with its place and fails', async () => {
    const { code, stdout } = await policy(BROKEN, 'check', 'policy.yaml')
    const lines = stdout.trim().split('\n')
    expect(code).toBe(1)
    for (const line of lines) expect(line).toMatch(/^policy\.yaml:\d+:\d+: .+ \(ERR_NGROK_\d+\)$/)
    expect(lines.map((line) => line.split(':').slice(1, 3).join(':'))).toEqual([
      ...['4:28', '4:46', '4:59', '4:83', '5:9'],
      ...['6:5', '7:19', '11:11', '12:33', '13:1'],
    ])
  })

  it('takes an action that only the hosted service may know for a warning there', async () => {
    const newer = 'on_http_request: [{ actions: [{ type: fly }] }]'
    expect((await policy(newer, 'check', 'policy.yaml')).code).toBe(1)
    const { code, stdout } = await policy(newer, 'check', '--hosted', 'policy.yaml')
    expect([code, stdout]).toEqual([0, expect.stringContaining(': warning: ')])
  })

  it('says when there is no such file', async () => {
    const { code, stderr } = await policy(LIMITED, 'check', 'other.yaml')
    expect([code, stderr]).toEqual([1, 'device-agent: other.yaml: there is no such file.\n'])
  })
})

describe('policy explain', () => {
  const explain = (...args: string[]) =>
    policy(LIMITED, 'explain', 'policy.yaml', '--request', ...args)

  it('shows which rules match and what would be answered', async () => {
    const { code, stdout } = await explain('GET https://h.example/secret')
    expect(code).toBe(0)
    expect(stdout).toContain('on_http_request[0] "limit": matches')
    expect(stdout).toContain('deny: answers 404')
    expect(stdout).toContain('answer: 404')
  })

  it('shows a limit at work when the request is repeated', async () => {
    const { stdout } = await explain('GET https://h.example/', '--repeat', '3', '--json')
    const outcomes = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).outcome)
    expect(outcomes.map(({ kind }) => kind)).toEqual(['continue', 'continue', 'respond'])
    expect(outcomes[2].reply.status).toBe(429)
  })

  it.each([
    [['/p']],
    [['GET https://h/', '-H', 'nonsense']],
    [['GET https://h/', '--ip', 'here']],
    [['GET https://h/', '--repeat', '0']],
  ])('calls %j wrong usage', async (args) => {
    const { code, stderr } = await explain(...args)
    expect([code, stderr]).toEqual([2, expect.stringMatching(/^error: /)])
  })
})

describe('policy schema', () => {
  it('is a JSON Schema that knows the actions', async () => {
    const { code, stdout } = await policy('', 'schema')
    const schema = JSON.parse(stdout)
    expect([code, Object.keys(schema.$defs)]).toEqual([0, expect.arrayContaining(['rate-limit'])])
  })
})
