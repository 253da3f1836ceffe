import { expect, it } from 'vitest'
import { describeUp, type UpReady } from '../../../src/cli/up.ts'
import { parseConfig } from '../../../src/config.ts'

const READY: UpReady = {
  agent_api: 'http://127.0.0.1:7040',
  agent_domain: 'agent.site.localhost',
  api_token: 'dagt_shown-nowhere',
  ingress_http: 'http://127.0.0.1:8080',
  ingress_https: 'https://127.0.0.1:8443',
  tcp_ports: '127.0.0.1:7100-7119',
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
  expect(text).toContain('  TCP          127.0.0.1:7100-7119, ')
  expect(text).toContain(`  API token    ${where}\n`)
  // The page is what most people need first.
  const [, , first] = text.split('\n')
  expect(first).toContain(`  device page  ${ready.agent_api}/page/ `)
  const lines = text.split('\n').filter((line) => line.includes('authorization: '))
  expect(lines).toHaveLength(2)
  for (const line of lines) expect(line).toContain(`Bearer ${pasted}"`)
  expect(text).not.toContain('shown-nowhere')
})
