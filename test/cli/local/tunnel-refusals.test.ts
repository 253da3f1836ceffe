import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { describe, expect, it, onTestFinished } from 'vitest'
import { serviceProblem } from '../../../src/agent/service-error.ts'
import { tunnelsCommand } from '../../../src/cli/local/tunnels.ts'
import { parseConfig } from '../../../src/config.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const POLICY = `on_http_request:
  - actions:
      - type: basic-auth
        config:
          credentials: [tom:short]
`

/** Runs `tunnels add` beside an agent that refuses with this problem. Returns the message. */
async function refusalOf(
  args: readonly string[],
  problem: object,
  name?: string,
  ownEndpoint: object | null = null,
): Promise<string> {
  const folder = temporaryFolder()
  const last = { invitation: 'in_1', pin: 'pin', joined: { name, url: null } }
  const record = { version: 1, last, claims: [] }
  if (name !== undefined) writeFileSync(join(folder, 'join.json'), JSON.stringify(record))
  const file = join(folder, 'bad.yaml')
  writeFileSync(file, POLICY)
  const server = createServer((request, response) => {
    request.resume()
    if (request.url === '/status') {
      response.end(JSON.stringify({ own_endpoint: ownEndpoint, healthy: true }))
      return
    }
    response.writeHead(422).end(JSON.stringify(problem))
  }).listen(join(folder, 'local.sock'))
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const output = new PassThrough()
  const { signal: stop } = new AbortController()
  const context = { environment: {}, stdout: output, stderr: output, stop }
  const words = args.map((word) => (word === 'bad.yaml' ? file : word))
  const added = tunnelsCommand(context).parseAsync(['add', ...words, '--data-dir', folder], {
    from: 'user',
  })
  const error = await added.then(
    () => undefined,
    (it: unknown) => it as Error,
  )
  return error?.message.replaceAll(file, 'bad.yaml') ?? 'none'
}

const TOO_SHORT = 'A password must have 8 to 128 characters.'

describe('a refused tunnel', () => {
  it('shows the mistakes of its policy with their lines, each once', async () => {
    const pointer = '/policy/on_http_request/0/actions/0/config/credentials/0'
    const errors = [{ pointer, detail: TOO_SHORT }]
    const problem = { code: 'policy-invalid', detail: TOO_SHORT, errors }
    expect(await refusalOf(['web', '8001', '--policy', 'bad.yaml'], problem)).toBe(
      `1 mistake in bad.yaml:\nbad.yaml:5:25: ${TOO_SHORT} (ERR_NGROK_360)`,
    )
    expect(await refusalOf(['web', '8001'], problem)).toBe(
      `${TOO_SHORT} (policy-invalid)\n  at ${pointer}`,
    )
  })

  it('names the command for a tunnel that exists', async () => {
    const detail =
      'web.site.test already has a tunnel. Remove it first, change it on the device page, or replace it with PUT.'
    expect(await refusalOf(['web.site.test', '7041'], { code: 'domain-taken', detail })).toBe(
      'web.site.test already has a tunnel. (domain-taken)\n  → To change it, run device-agent tunnels set web.site.test 7041',
    )
  })

  it('names the device in the command that allows an address', async () => {
    const address = 'gateway.example.com:20017'
    const { detail: flaw, remedy } = serviceProblem(
      `The ACL rules of the authtoken cr_1 do not allow ${address}.`,
      'ERR_NGROK_316',
    )
    const problem = { code: 'forbidden', detail: `${flaw} ${remedy}` }
    const refused = (name?: string) =>
      refusalOf(['--protocol', 'tcp', address, '22'], problem, name)
    expect(await refused('cam01')).toContain(`invite --name cam01 --allow '${address}' on the`)
    expect(await refused()).toContain('NAME is the name of this device.')
  })

  it('offers a name of this device', async () => {
    const own = { domain: 'agent.cam01.site.test' }
    const detail = 'must be a domain name'
    const problem = {
      code: 'invalid-request',
      detail: 'No.',
      errors: [{ pointer: '/domain', detail }],
    }
    expect(await refusalOf(['web2', '8001'], problem, undefined, own)).toContain(
      '  → Names of this device end in cam01.site.test, such as web2.cam01.site.test.',
    )
    const foreign = ['cam02.site.test', '8001']
    expect(await refusalOf(foreign, { code: 'forbidden', detail: 'No.' }, undefined, own)).toBe(
      'No. (forbidden)\n  → Names of this device end in cam01.site.test.',
    )
    expect(await refusalOf(foreign, { code: 'forbidden', detail: 'No.' })).toBe('No. (forbidden)')
  })

  it('names the option for a pool', async () => {
    const detail =
      'The endpoint https://web.site.test is online in a pool. Set pooling_enabled on all tunnels of the domain or on none.'
    expect(await refusalOf(['web.site.test', '1'], { code: 'domain-conflict', detail })).toContain(
      'Use --pooling on all devices of the domain, or --no-pooling on all.',
    )
  })

  it('names the setting of a target that is not allowed, and its file', async () => {
    const rule = '192.168.1.20 is not in AGENT_FORWARD_ALLOW'
    const detail = `Forwarding to 192.168.1.20:80 is not allowed: ${rule}.`
    const errors = [{ pointer: '/forwards_to', detail: rule }]
    const problem = { code: 'forwards-to-not-allowed', detail, errors }
    expect(await refusalOf(['web', '192.168.1.20:80'], problem)).toBe(
      `${detail} (forwards-to-not-allowed)\n  at forwards_to\n  → Add 192.168.1.20:80 to AGENT_FORWARD_ALLOW in .env, in the folder where the agent was started, then restart the agent.`,
    )
  })

  it.each([
    ['https://cam.local:9103', 'cam.local:9103'],
    ['https://192.168.1.21:443', '192.168.1.21:443'],
    ['https://[fd00::2]:5001', '[fd00::2]:5001'],
    ['unix:/run/app.sock', 'unix:/run/app.sock'],
  ])('for %s, names an entry that the setting takes', async (target, entry) => {
    const detail = `Forwarding to ${target} is not allowed: it is not in AGENT_FORWARD_ALLOW.`
    const refused = await refusalOf(['web', target], { code: 'forwards-to-not-allowed', detail })
    expect(refused).toContain(`→ Add ${entry} to AGENT_FORWARD_ALLOW in .env,`)
    expect(() => parseConfig({ AGENT_FORWARD_ALLOW: entry })).not.toThrow()
  })
})
