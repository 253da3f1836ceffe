import { appendFileSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { parse } from 'dotenv'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { formatListenAddress } from '../../../src/base/listen-address.ts'
import { createProgram } from '../../../src/cli/program.ts'
import { GatewayCluster } from '../../helpers/gateway-cluster.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { lastingAddress } from '../../helpers/some-ports.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const API = { host: '127.0.0.1', port: 0 }

describe.skipIf(!hasPostgres)('provisioning at one of several gateways', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  it('gives devices the addresses of all gateways, or those of the option', async () => {
    const cluster = GatewayCluster.open(await postgres.database())
    const agentListen = (number: number) => ({
      host: `127.0.0.${number}`,
      port: lastingAddress().port,
    })
    const one = await cluster.start({ apiListen: API, agentListen: agentListen(1) })
    const two = await cluster.start({ authtoken: one.authtoken, agentListen: agentListen(2) })
    const { apiKey } = await managed(one)
    const own = formatListenAddress(one.addresses.agent)
    const output = temporaryFolder()
    let told = ''
    const provision = async (name: string, ...args: string[]) => {
      const [stdout, stderr] = [new PassThrough(), new PassThrough()]
      const environment = {
        SVC_API_KEY: apiKey.reveal(),
        GATEWAY_DATA_DIR: one.dataDir,
        GATEWAY_API_LISTEN: `127.0.0.1:${one.addresses.api?.port}`,
        GATEWAY_AGENT_LISTEN: own,
        GATEWAY_RESERVED_DOMAIN: '*.site.test',
      }
      const { signal: stop } = new AbortController()
      const program = createProgram({ environment, stdout, stderr, stop })
      const words = ['--name', name, '--output', output, ...args]
      await program.parseAsync(['node', 'device-agent', 'provision', ...words])
      told = String(stderr.read())
      return parse(readFileSync(join(output, `${name}.env`))).SVC_SERVER_ADDR
    }
    const all = `${own},${formatListenAddress(two.addresses.agent)}`
    expect(await provision('cam1')).toBe(all)
    appendFileSync(join(output, 'fleet-devices.jsonl'), '{"name":"cam')
    const given = ['--server-addr', 'a.test:4443, b.test:4443']
    expect(await provision('cam1', ...given)).toBe('a.test:4443,b.test:4443')
    expect(told).toMatch(
      /^warning: .*:\d+: the line is incomplete, .* A run for the device adds it/m,
    )
    await expect(provision('cam2', '--server-addr', 'a.test')).rejects.toThrow(
      'It must be host:port, or up to 5 addresses separated by commas.',
    )
  })
})
