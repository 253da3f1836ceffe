import { describe, expect, it } from 'vitest'
import { formatListenAddress } from '../../../src/base/listen-address.ts'
import { FAST_TIMINGS } from '../../helpers/agent-in-folder.ts'
import { carriesTraffic, startedOnGateway } from '../../helpers/agent-on-gateway.ts'
import { ChaosProxy } from '../../helpers/chaos-proxy.ts'
import { eventually } from '../../helpers/eventually.ts'
import { startGateway } from '../../helpers/running-gateway.ts'

/** A busy machine fails no step of a connect. */
const PATIENT = { dnsMs: 60_000, connectMs: 60_000, tlsMs: 60_000 }

const addressOf = ({ address }: ChaosProxy) =>
  formatListenAddress(address).replace('127.0.0.1', 'localhost')
const countIn = (text: string, what: RegExp) => text.match(what)?.length ?? 0

describe('an agent with the SDK whose links all break', () => {
  it('serves with the session of the standby, and opens no other one to that gateway', async () => {
    const running = await startGateway()
    const first = await ChaosProxy.start(running.addresses.agent)
    const second = await ChaosProxy.start(running.addresses.agent)
    const serverAddrs = [addressOf(first), addressOf(second)]
    const timings = { ...FAST_TIMINGS, preflight: PATIENT, settleMs: 60_000 }
    const on = await startedOnGateway({ running, serverAddrs, timings })
    await on.createTunnels('a')
    const link = () => on.agent.status().link
    const becomes = (state: object) => eventually(() => expect(link()).toMatchObject(state))
    await becomes({ serverAddr: serverAddrs[0], standby: { state: 'ready' } })
    first.freeze()
    first.cut()
    await becomes({ state: 'up', serverAddr: serverAddrs[1], standby: { state: 'connecting' } })
    const online = () => countIn(running.logText(), /agent online/g)
    const before = online()
    second.refuse()
    second.cut()
    await becomes({ state: 'connecting', serverAddr: serverAddrs[0] })
    first.thaw()
    await becomes({ state: 'up', serverAddr: serverAddrs[0] })
    await carriesTraffic(on)
    expect(online()).toBe(before + 1)
    second.heal()
    await becomes({ serverAddr: serverAddrs[0], standby: { state: 'ready' }, duplicate: undefined })
    expect(online()).toBe(before + 2)
    await eventually(() => expect(running.gateway.parts.sessions.size).toBe(2))
  })

  it('returns without a second TLS handshake', async () => {
    const on = await startedOnGateway({ timings: { ...FAST_TIMINGS, preflight: PATIENT } })
    const refused = () => countIn(on.logText(), /unsupported protocol/gi)
    expect(refused()).toBe(0)
    const { accepted } = on.proxy
    on.proxy.cut()
    await eventually(() => {
      expect(on.proxy.accepted).toBe(accepted + 2)
      expect(on.agent.status().link.state).toBe('up')
    })
    expect(refused()).toBe(1)
  })

  it('notices a gateway that accepts connections and stays silent, and returns when it answers', async () => {
    let poisoned = 0
    const on = await startedOnGateway({
      onPoisoned: () => {
        poisoned += 1
      },
    })
    await on.createTunnels('a')
    on.proxy.mute()
    on.proxy.cut()
    await eventually(() =>
      expect(on.agent.status().link.lastError).toMatch(/did not answer .* accepts connections/),
    )
    on.proxy.heal()
    await carriesTraffic(on)
    expect(poisoned).toBe(0)
  })
})
