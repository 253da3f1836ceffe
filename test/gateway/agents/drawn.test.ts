import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { RawAgent, type RpcAnswer } from '../../helpers/raw-agent.ts'
import { type RunningGateway, startGateway } from '../../helpers/running-gateway.ts'
import { somePorts } from '../../helpers/some-ports.ts'

const tcp = (more: object = {}) => ({
  ...{ Id: '', Proto: 'tcp', ForwardsTo: 'localhost:22', Opts: { Addr: '' } },
  ...{ Extra: { Token: '', Metadata: '' }, ...more },
})

async function connect(running: RunningGateway, clientId = '') {
  const agent = await RawAgent.connect(running)
  const { ClientId } = await agent.auth(running.authtoken.reveal(), {}, clientId)
  return { agent, clientId: String(ClientId) }
}

const again = ({ Id, Opts, Extra }: RpcAnswer) => {
  const { Token } = Extra as { readonly Token: string }
  return tcp({ Id, Opts, Extra: { Token, Metadata: '' } })
}

it('a free port is the same after a crash of the gateway that had no time to write it down', async () => {
  const tcpListen = somePorts(64)
  const running = await startGateway({ tcpListen })
  const { agent, clientId } = await connect(running)
  const bound = await agent.rpc(1, tcp())
  await running.gateway.stop()
  rmSync(join(running.dataDir, 'names.json'))
  const { dataDir, authtoken } = running
  const next = await startGateway({ dataDir, tcpListen, authtoken })
  const back = await connect(next, clientId)
  expect((await back.agent.rpc(1, again(bound))).URL).toBe(bound.URL)
  // Nobody gets it from somebody who has it, and no forged token is good.
  const other = await connect(next)
  const second = await other.agent.rpc(1, again(bound))
  expect(second.Error ?? '').toBe('')
  expect(second.URL).not.toBe(bound.URL)
  const ports = Array.from({ length: 10 }, (_, at) => `127.0.0.1:${tcpListen.first + at}`)
  const taken = [bound.URL, second.URL]
  const wanted = ports.filter((address) => !taken.includes(`tcp://${address}`)).slice(0, 5)
  let guessed = 0
  for (const address of wanted) {
    const forged = tcp({ Extra: { Token: `${address} AAAA`, Metadata: '' } })
    const { URL: url } = await other.agent.rpc(1, forged)
    if (url === `tcp://${address}`) guessed += 1
  }
  expect(guessed).toBeLessThan(5)
})

it('an agent of version 2 gets one random host for HTTP and HTTPS', async () => {
  const running = await startGateway()
  const bind = (agent: RawAgent, Proto: string, ForwardsTo = 'http://localhost:80') =>
    agent.rpc(1, { Id: '', Proto, ForwardsTo, Opts: { Hostname: '' }, Extra: { Token: '' } })
  const hostOf = ({ URL: url }: RpcAnswer) => new URL(String(url)).hostname
  const old = await RawAgent.connect(running)
  const Authtoken = running.authtoken.reveal()
  await old.rpc(0, { Version: ['2'], ClientId: '', Extra: { Authtoken, Version: '2.3.40' } })
  const first = await bind(old, 'https')
  const second = await bind(old, 'http')
  expect(hostOf(second)).toBe(hostOf(first))
  expect(String(second.URL)).toMatch(/^http:/)
  // Another service, or another tunnel to the same one, has a host of its own.
  expect(hostOf(await bind(old, 'http', 'http://localhost:81'))).not.toBe(hostOf(first))
  expect(hostOf(await bind(old, 'http'))).not.toBe(hostOf(first))
  const { agent } = await connect(running)
  expect(hostOf(await bind(agent, 'https'))).not.toBe(hostOf(await bind(agent, 'http')))
})
