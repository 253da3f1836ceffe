import { describe, expect, it } from 'vitest'
import { checkPolicy } from '../../src/policy/check.ts'

const lines = (text: string, service: 'embedded' | 'hosted' = 'embedded') =>
  checkPolicy(text, { service }).map(
    ({ position: { line, column }, severity, code }) => `${line}:${column} ${severity} ${code}`,
  )

const YAML = `# a comment
on_http_request:
  - name: limit
    expressions:
      - req.methd == 'GET'
      - "req.host == 'a'"
    actions:
      - type: rate-limit
        config:
          name: x
          algorithm: sliding_window
          capacity: 0
          rate: 60s
          bucket_key: [conn.client_ip, 1 +]
      - type: saml
      - type: deny
        config: {status: 403}
`

describe('checkPolicy()', () => {
  const sentences = (text: string) =>
    checkPolicy(text, { service: 'embedded' }).map(
      ({ position: { line }, message }) => `${line}: ${message}`,
    )

  it('reads one document, and says where a second one starts', () => {
    expect(sentences('on_http_request: []\n---\non_http_response: []\n')).toEqual([
      expect.stringMatching(
        /^[23]: A policy must be a single YAML document\. A second document starts here\.$/,
      ),
    ])
  })

  it('reads less of YAML than of JSON: it takes a hundred times as long', () => {
    const long = JSON.stringify({ on_http_request: [] }).padEnd(70_000)
    expect(sentences(long)).toEqual([])
    expect(sentences(`# ${'x'.repeat(70_000)}\non_http_request: []\n`)).toEqual([
      expect.stringContaining('not valid JSON, and too long for YAML (at most 65536 characters)'),
    ])
  })

  it('finds nothing wrong with a good document', () => {
    expect(lines('{"on_http_request": []}')).toEqual([])
  })

  it('places problems in YAML, in the order of the text', () => {
    expect(lines(YAML)).toEqual([
      '5:9 error ERR_NGROK_2200',
      '12:11 error ERR_NGROK_2215',
      '14:42 error ERR_NGROK_2200',
      '15:9 error ERR_NGROK_2256',
      '17:18 error ERR_NGROK_2204',
    ])
  })

  it('makes warnings of what only the hosted service can judge', () => {
    expect(lines(YAML, 'hosted')).toEqual([
      '5:9 warning ERR_NGROK_2200',
      '12:11 error ERR_NGROK_2215',
      '14:42 error ERR_NGROK_2200',
      '15:9 warning ERR_NGROK_2256',
      '17:18 error ERR_NGROK_2204',
    ])
  })

  it.each([true, false])('warns of an option that only this gateway has, set to %s', (value) => {
    const text = `on_http_request: []\nallow_ambiguous_paths: ${value}\n`
    expect([lines(text), lines(text, 'hosted')]).toEqual([[], ['2:1 warning ERR_NGROK_2256']])
  })

  it('places problems in JSON, tabs and all', () => {
    const text =
      '{\n\t"on_http_request": [\n\t\t{ "actions": [{ "type": "deny", "config": { "x": 1 } }] }\n\t]\n}'
    expect(lines(text)).toEqual(['3:47 error ERR_NGROK_2204'])
  })

  it('places what is missing at the thing around it', () => {
    expect(lines('on_http_request:\n  - actions:\n      - type: redirect\n')).toEqual([
      '3:9 error ERR_NGROK_2204',
    ])
  })

  it.each([
    ['{"on_http_request": [', '1:22'],
    ['a: 1\nb: [\n', '2:5'],
  ])('places what cannot be read: %j', (text, place) => {
    expect(lines(text)).toEqual([`${place} error ERR_NGROK_2236`])
  })

  it('says where in an expression it stumbled', () => {
    const [problem] = checkPolicy(YAML, { service: 'embedded' })
    expect(problem?.message).toBe(
      "The expression `req.methd == 'GET'` is not valid: unknown name req.methd: did you mean req.method? (at character 1).",
    )
  })
})
