import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { Writable } from 'node:stream'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type DrainOptions, drain } from '../../../src/cli/site/drain.ts'
import { drainCommand } from '../../../src/cli/site/drain-command.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { connectSdk, type RunningGateway } from '../../helpers/running-gateway.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const API = { host: '127.0.0.1', port: 0 }

/** A stream that keeps what is written, as a terminal or not. */
function keep(isTTY = false) {
  let text = ''
  const stream = new Writable({
    write: (chunk, _encoding, done) => {
      text += chunk
      done()
    },
  })
  return { stream: Object.assign(stream, { isTTY, columns: 200 }), text: () => text }
}

/** `device-agent gateway drain` at the API of a gateway. */
async function commandAt(gateway: RunningGateway) {
  const { call, apiKey } = await managed(gateway)
  const keyFile = join(temporaryFolder(), 'key')
  writeFileSync(keyFile, apiKey.reveal())
  const apiUrl = new URL(`http://127.0.0.1:${gateway.addresses.api?.port}`)
  const run = async (
    name: string | undefined,
    options: Partial<DrainOptions> = {},
    stop = new AbortController(),
  ) => {
    const [stdout, stderr] = [keep(), keep(true)]
    process.exitCode = 0
    await drain(
      { environment: {}, stdout: stdout.stream, stderr: stderr.stream, stop: stop.signal },
      name,
      { timeout: 120_000, apiUrl, keyFile, ...options },
    )
    return { code: process.exitCode, out: stdout.text(), bar: stderr.text() }
  }
  return { run, call }
}

afterEach(() => {
  process.exitCode = 0
})

it('says how long it waits in the words that it takes', () => {
  const stream = keep().stream
  const stop = new AbortController().signal
  const command = drainCommand({ environment: {}, stdout: stream, stderr: stream, stop })
  expect(command.helpInformation()).toContain('(default: 10m)')
})

describe.skipIf(!hasPostgres)('device-agent gateway drain', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  it('empties a gateway, and takes that back', async () => {
    const cluster = GatewayCluster.open(await postgres.database())
    const one = await cluster.start({ apiListen: API })
    const two = await cluster.start({ authtoken: one.authtoken, apiListen: API })
    const [id, other] = [one, two].map(({ gateway }) => nodeIn(gateway)?.nodeId)
    const { run, call } = await commandAt(two)
    await connectSdk(one)
    await connectSdk(one)
    const done = await run(id, { json: true })
    expect(done.code).toBe(0)
    expect(JSON.parse(done.out)).toMatchObject({
      ...{ id, state: 'draining', is_done: true },
      left: { agents: 0, endpoints: 0, requests: 0 },
    })
    const undone = await run(id, { undo: true })
    expect(undone).toMatchObject({
      code: 0,
      out: expect.stringContaining('accepts connections again'),
    })
    // The other one has to have heard of it: it is the last one until then.
    await eventually(() => {
      const node = nodeIn(two.gateway)
      expect(node?.cluster.nodes.find(id ?? '')?.standing).toBe('serving')
    })
    // Unless somebody says which, it is the one that is asked.
    expect(JSON.parse((await run(undefined, { json: true })).out).id).toBe(other)
    await run(undefined, { undo: true })
    // Both run on this machine.
    const { name } = (await call('GET', `/nodes/${id}`)).body
    await expect(run(name)).rejects.toThrow(`Several gateways are named ${name}. Use an id.`)
    await expect(run('nobody')).rejects.toThrow('has no gateway nobody.')
    const stop = new AbortController()
    stop.abort()
    await expect(run(id, {}, stop)).rejects.toThrow('Stopped')
  })

  it('says what is left when the time is up', async () => {
    const cluster = GatewayCluster.open(await postgres.database())
    const one = await cluster.start({ apiListen: API })
    await cluster.start({ authtoken: one.authtoken })
    const { run } = await commandAt(one)
    for (const device_id of ['cam', 'press']) {
      // It says that it begins another session, and does not.
      const metadata = JSON.stringify({ device_id, instance: 'process-1' })
      await connectSdk(one, { metadata, onRestart: () => {} })
    }
    const { code, out, bar } = await run(undefined, { timeout: 700 })
    expect(code).toBe(3)
    expect(out).toMatch(/is not empty yet: 2 agents, 0 endpoints, 0 requests left\./)
    expect(bar).toContain('0/2 2 agents, 0 endpoints, 0 requests left')
  })
})
