/**
 * The agents of many devices in one process, so that their work is not counted with the gateway's.
 * Started with the gateway's address and CA; takes its orders over IPC and answers each once.
 */
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { createSecureContext } from 'node:tls'
import { DEFAULT_TIMINGS } from '../src/agent/timings.ts'
import { Backoff } from '../src/base/backoff.ts'
import { parseListenAddress } from '../src/base/listen-address.ts'
import type { CrowdAnswer, CrowdOrder } from './crowd-process.ts'
import { type AgentServer, type Device, WireAgent } from './wire-agent.ts'

/** Devices that connect at the same time at first; later they come back when they like. */
const AT_ONCE = 20

const [agentListen = '', caPath = ''] = process.argv.slice(2)
const address = parseListenAddress(agentListen)
if (!address) throw new Error(`no address: ${agentListen}`)
const server: AgentServer = {
  address,
  trust: createSecureContext({ ca: readFileSync(caPath) }),
}

/** When each device was online last, in milliseconds since the epoch. */
const onlineAt = new Map<Device, number>()
let expected = 0
let onAllOnline: (() => void) | undefined

/** One connection after the other, each closed again. */
async function timeConnections(devices: readonly Device[]): Promise<CrowdAnswer> {
  const handshakeMs: number[] = []
  const authMs: number[] = []
  for (const device of devices) {
    const agent = await WireAgent.connect(server)
    await agent.authenticate(device)
    handshakeMs.push(agent.handshakeMs)
    authMs.push(agent.authMs ?? Number.NaN)
    await agent.end()
  }
  return { handshakeMs, authMs }
}

async function goOnline(device: Device): Promise<WireAgent> {
  const agent = await WireAgent.connect(server)
  await agent.authenticate(device)
  await agent.bind(device)
  onlineAt.set(device, Date.now())
  if (onlineAt.size === expected) onAllOnline?.()
  void agent.closed.then(() => {
    onlineAt.delete(device)
    void comeBack(device)
  })
  return agent
}

/** Pauses like the product's agent, tries, and never gives up. */
async function comeBack(device: Device): Promise<void> {
  const { backoffBaseMs: baseMs, backoffCapMs: capMs } = DEFAULT_TIMINGS.link
  const backoff = new Backoff({ baseMs, capMs })
  for (;;) {
    await sleep(backoff.next())
    const isOnline = await goOnline(device).then(
      () => true,
      () => false,
    )
    if (isOnline) return
  }
}

async function connectAll(devices: readonly Device[]): Promise<CrowdAnswer> {
  expected = devices.length
  const startedAt = performance.now()
  const waiting = [...devices]
  const connectWaiting = async () => {
    for (let device = waiting.pop(); device; device = waiting.pop()) await goOnline(device)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, connectWaiting))
  return { connectedMs: performance.now() - startedAt }
}

/** Resolves when every device is online again. */
async function awaitAll(): Promise<CrowdAnswer> {
  if (onlineAt.size < expected) {
    await new Promise<void>((resolve) => {
      onAllOnline = resolve
    })
  }
  return { onlineAt: [...onlineAt.values()] }
}

function obey(order: CrowdOrder): Promise<CrowdAnswer> {
  switch (order.kind) {
    case 'time-connections':
      return timeConnections(order.devices)
    case 'connect':
      return connectAll(order.devices)
    case 'await-all':
      return awaitAll()
  }
}

process.on('message', (order: CrowdOrder) => {
  obey(order).then(
    (answer) => process.send?.(answer),
    (error: Error) => process.send?.({ error: error.message } satisfies CrowdAnswer),
  )
})
process.on('disconnect', () => process.exit(0))
