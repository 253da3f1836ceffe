import { expect, it } from 'vitest'
import { describeUp, type UpReady } from '../../../src/cli/up/up-text.ts'
import { parseConfig } from '../../../src/config.ts'

const READY: UpReady = {
  agent_api: 'http://127.0.0.1:7040',
  agent_domain: 'agent.site.localhost',
  api_token: 'dagt_shown-nowhere',
  ingress_http: 'http://127.0.0.1:8080',
  ingress_https: 'https://127.0.0.1:8443',
  ca_cert: 'ca.pem',
  reserved_domain: '*.site.localhost',
  authtoken: 'authtoken',
  management_api: 'http://127.0.0.1:8070',
  api_key: 'key',
}
const GIVEN = { AGENT_API_TOKEN: 'token-of-at-least-20-characters' }

it.each([
  ['the file', READY, {}, 'data/api-token', '$(cat data/api-token)'],
  ['the setting', READY, GIVEN, 'AGENT_API_TOKEN', '$AGENT_API_TOKEN'],
  [
    'a file to make when this one cannot be read',
    { ...READY, api_token: null },
    {},
    'cannot read its file: delete the file and start again',
    '$AGENT_API_TOKEN',
  ],
])('takes the token from %s', (_what, ready, environment, where, pasted) => {
  const text = describeUp(ready, 7041, parseConfig(environment))
  expect(text).toContain(`  API token    ${where}\n`)
  const lines = text.split('\n').filter((line) => line.includes('authorization: '))
  expect(lines).toHaveLength(2)
  for (const line of lines) expect(line).toContain(`Bearer ${pasted}"`)
  expect(text).not.toContain('shown-nowhere')
})

it('shows each of several gateways, and how to see one go', () => {
  const node = (number: number) => ({
    ...{ number, pid: 4_710 + number, data_dir: `data/gateway-${number}` },
    ...{ agent_listen: '127.0.0.1:1', ingress_http: `http://127.0.0.${number}:8080` },
    ...{ ingress_https: '', management_api: `http://127.0.0.1:807${number}` },
    api_key_file: `data/gateway-${number}/api-key`,
  })
  const ready = { ...READY, nodes: [node(1), node(2), node(3)] }
  const text = describeUp(ready, 7041, parseConfig(GIVEN))
  expect(text).toMatch(/^Agent and 3 gateways are up\.\n/)
  expect(text).toContain(
    '  gateway 3    http://127.0.0.3:8080, console http://127.0.0.1:8073/console/, process 4713\n',
  )
  expect(text).toContain('(API key: data/gateway-1/api-key)')
  expect(text).toContain('--resolve hello.site.localhost:8080:127.0.0.2 ')
  expect(text).toContain('\n  kill -9 4712\n')
  expect(describeUp(READY, 7041, parseConfig(GIVEN))).not.toMatch(/kill|gateways/)
})
