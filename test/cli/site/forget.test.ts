import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type ForgetOptions, forget } from '../../../src/cli/site/forget.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import type { RunningGateway } from '../../helpers/running-gateway.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const API = { host: '127.0.0.1', port: 0 }

/** `device-agent gateway forget` at the API of a gateway. */
async function commandAt(gateway: RunningGateway) {
  const { call, apiKey } = await managed(gateway)
  const keyFile = join(temporaryFolder(), 'key')
  writeFileSync(keyFile, apiKey.reveal())
  const apiUrl = new URL(`http://127.0.0.1:${gateway.addresses.api?.port}`)
  const run = async (name: string, options: Partial<ForgetOptions> = {}) => {
    let out = ''
    const stdout = new Writable({
      write: (chunk, _encoding, done) => {
        out += chunk
        done()
      },
    })
    const { signal } = new AbortController()
    const context = { environment: {}, stdout, stderr: stdout, stop: signal }
    await forget(context, name, { apiUrl, keyFile, ...options })
    return out
  }
  return { run, call }
}

describe.skipIf(!hasPostgres)('device-agent gateway forget', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  it('removes the gateway that is gone, and no other', async () => {
    const cluster = GatewayCluster.open(await postgres.database())
    const one = await cluster.start({ apiListen: API })
    const two = await cluster.start({ authtoken: one.authtoken })
    const [own, id] = [one, two].map(({ gateway }) => nodeIn(gateway)?.nodeId ?? '')
    const { run, call } = await commandAt(one)
    await expect(run(own ?? '')).rejects.toThrow('ERR_NGROK_844')
    await expect(run('nobody')).rejects.toThrow('has no gateway nobody.')
    await two.gateway.stop()
    await eventually(async () => {
      expect((await call('GET', `/nodes/${id}`)).body).toMatchObject({ state: 'gone' })
    })
    // Both ran on this machine: the one that is gone is meant.
    const { name } = (await call('GET', `/nodes/${id}`)).body
    expect(JSON.parse(await run(name, { json: true }))).toEqual({ id, name, state: 'forgotten' })
    expect((await call('GET', '/nodes')).body.nodes).toHaveLength(1)
    await expect(run(id ?? '')).rejects.toThrow(`has no gateway ${id}.`)
  })
})
