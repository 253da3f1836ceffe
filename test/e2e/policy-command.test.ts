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
      ...['6:5', '7:19', '11:11', '12:20', '12:33', '13:1'],
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
    expect([code, stderr]).toEqual([1, 'device-agent: other.yaml: file not found.\n'])
  })

  it('checks all other files if a file is missing', async () => {
    const files = ['other.yaml', 'policy.yaml']
    const { code, stdout, stderr } = await policy(BROKEN, 'check', ...files)
    expect(code).toBe(1)
    expect(stdout).toMatch(/^policy\.yaml:4:28: /)
    expect(stderr).toBe('device-agent: other.yaml: file not found.\n')
    const asJson = await policy(BROKEN, 'check', '--json', ...files)
    const { problems } = JSON.parse(asJson.stdout)
    expect(asJson.code).toBe(1)
    expect(problems).toHaveLength(12)
    expect(problems[0]).toEqual({
      file: 'other.yaml',
      ...{ line: null, column: null, pointer: null, severity: 'error', code: null },
      message: 'file not found',
    })
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

  it('tells the whole story of a request, in its order', async () => {
    const story = `on_http_request:
  - name: settings
    actions: [{ type: set-vars, config: { vars: [{ tier: gold }] } }]
  - name: others
    expressions: ["vars.tier == 'gold'", "req.method == 'PUT'"]
    actions: [{ type: deny }]
on_http_response:
  - expressions: [res.status_code >= 500]
    actions:
      - type: custom-response
        config: { status_code: 502, body: "\${req.host} is ill" }
`
    const request = ['--request', 'GET https://h.example/p', '--status', '503']
    const answer = ['--response-header', 'x-a: b', '--repeat', '2']
    const { stdout } = await policy(story, 'explain', 'policy.yaml', ...request, ...answer)
    expect(stdout).toBe(`requests 1 to 2
  on_http_request[0] "settings": matches
    set-vars: continues, vars are {"tier":"gold"}
  on_http_request[1] "others": does not match, false: req.method == 'PUT'
  forwarded as /p
    host: h.example
  upstream answers 503
    x-a: b
  on_http_response[0]: matches
    custom-response: answers 502
  answer: 502
    content-type: text/plain; charset=utf-8

    h.example is ill
`)
  })

  it('says which rule failed', async () => {
    const failing = `on_http_request:
  - { name: guard, expressions: ["req.headers['x'][0] == 'y'"], actions: [{ type: deny }] }
`
    const { stdout } = await policy(
      ...([failing, 'explain', 'policy.yaml', '--request', 'GET https://h/'] as const),
    )
    expect(stdout).toContain(`"guard": fails and ends the policy: \`req.headers['x'][0]\` failed`)
    expect(stdout).toContain('failed: the request has no header x')
    expect(stdout).toContain('answer: 500')
  })

  it('says what is wrong with a policy that it cannot run', async () => {
    const { code, stdout, stderr } = await policy(
      ...([BROKEN, 'explain', 'policy.yaml', '--request', 'GET https://h/'] as const),
    )
    expect([code, stdout]).toEqual([1, ''])
    expect(stderr).toMatch(
      /^policy\.yaml:4:28: algorithm must be sliding_window\. \(ERR_NGROK_2219\)$/m,
    )
    expect(stderr).toMatch(/^device-agent: policy\.yaml is not a valid policy\.$/m)
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
    [['GET https://h/', '--status', '99']],
    [['GET https://h/', '--response-header', 'nonsense']],
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
