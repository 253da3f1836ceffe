import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { FREE_PORTS } from '../helpers/program.ts'
import { SocketKeeper } from '../helpers/socket-keeper.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

async function openKeeper(hosts: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const folder = temporaryFolder()
  const keeper = await SocketKeeper.open(['gateway', '--json'], hosts, ([agent, http, api]) => ({
    ...FREE_PORTS,
    GATEWAY_DATA_DIR: folder,
    LOG_LEVEL: 'warn',
    ...(agent === undefined ? {} : { GATEWAY_AGENT_LISTEN: agent }),
    ...(http === undefined ? {} : { GATEWAY_HTTP_LISTEN: http }),
    ...(api === undefined ? {} : { GATEWAY_API_LISTEN: api }),
    ...env,
  }))
  return { keeper, folder }
}

it('serves on the sockets that it was given, and who connects while it is away waits', async () => {
  const { keeper, folder } = await openKeeper(['127.0.0.1', '127.0.0.1', '::1'])
  const [agent, http, api] = keeper.addresses
  // Nobody runs yet: the kernel keeps the connection.
  const early = fetch(`http://${http}/`)
  const first = await keeper.start()
  onTestFinished(() => keeper.stop())
  expect(first.ready).toMatchObject({
    agent_listen: agent,
    ingress_http: `http://${http}`,
    management_api: `http://${api}`,
  })
  expect((await early).status).toBe(404)

  process.kill(first.pid, 'SIGTERM')
  expect(await keeper.ended()).toBe(0)
  const key = readFileSync(join(folder, 'api-key'), 'utf8').trim()
  const headers = { authorization: `Bearer ${key}`, 'svc-version': '2' }
  const late = fetch(`http://${api}/endpoints`, { headers })
  const second = await keeper.start()
  expect((await late).status).toBe(200)
  process.kill(second.pid, 'SIGTERM')
  expect(await keeper.ended()).toBe(0)
  expect(keeper.stderr).not.toContain('no setting uses')
})

it('says which of the sockets no setting uses, and serves on the others', async () => {
  const { keeper } = await openKeeper(['127.0.0.1', '127.0.0.1'], {
    GATEWAY_HTTP_LISTEN: '127.0.0.1:0',
  })
  const { pid, ready } = await keeper.start()
  onTestFinished(() => keeper.stop())
  expect(ready).toMatchObject({ agent_listen: keeper.addresses[0] })
  process.kill(pid, 'SIGTERM')
  expect(await keeper.ended()).toBe(0)
  expect(keeper.stderr.match(/no setting uses this address/g)).toHaveLength(1)
  expect(keeper.stderr).toContain(`"address":"${keeper.addresses[1]}"`)
})

it('keeps the queue of its sockets as long as it was, beyond what Node would set', async () => {
  const many = Math.min(700, Number(readFileSync('/proc/sys/net/core/somaxconn', 'utf8')))
  const { keeper } = await openKeeper(['127.0.0.1', '127.0.0.1', '127.0.0.1'])
  const { pid } = await keeper.start()
  onTestFinished(() => keeper.stop())
  const clients: Socket[] = []
  process.kill(pid, 'SIGSTOP')
  try {
    for (const address of keeper.addresses) {
      const port = Number(new URL(`tcp://${address}`).port)
      for (let index = 0; index < many; index += 1)
        clients.push(connect({ port, host: '127.0.0.1' }))
    }
    // The kernel sends nobody away: it forgets, and the client tries again in a second.
    await Promise.all(clients.map((client) => once(client, 'connect')))
  } finally {
    for (const client of clients) client.destroy()
    process.kill(pid, 'SIGCONT')
  }
  process.kill(pid, 'SIGTERM')
  expect(await keeper.ended()).toBe(0)
})
