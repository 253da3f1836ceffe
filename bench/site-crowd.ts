/**
 * Agents of many devices that know several gateways, in one process, with what visitors are answered
 * by each. Started with a settings file; says over IPC when all are online, and goes on until killed.
 */
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { createSecureContext } from 'node:tls'
import { Backoff } from '../src/base/backoff.ts'
import { parseListenAddress } from '../src/base/listen-address.ts'
import type { Stream } from '../src/muxado/stream.ts'
import { asDuplex } from '../test/helpers/stream-duplex.ts'
import { type Device, WireAgent } from './wire-agent.ts'

/** What the process is started with. */
export interface SiteCrowd {
  /** Of the gateways; a device begins at one of them, in turn, and goes on to the next. */
  readonly servers: readonly string[]
  readonly ca: string
  /** Given to the devices in turn: each lets in 600 sessions a minute. */
  readonly authtokens: readonly string[]
  /** The names of each device. */
  readonly devices: readonly (readonly string[])[]
}

const AT_ONCE = 20
/** As the product's agent goes on to its next address. */
const AGAIN_MS = { baseMs: 30, capMs: 1_000 }
const ANSWER = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'

const { servers, ca, authtokens, devices }: SiteCrowd = JSON.parse(
  readFileSync(process.argv[2] ?? '', 'utf8'),
)
const trust = createSecureContext({ ca })
const addresses = servers.flatMap((text) => parseListenAddress(text) ?? [])

/** Answers each request on a stream that has no body. */
function answer(stream: Stream): void {
  const duplex = asDuplex(stream)
  let seen = ''
  duplex.on('error', () => {})
  duplex.on('end', () => duplex.end())
  duplex.on('data', (chunk: Buffer) => {
    seen += chunk.toString('latin1')
    while (seen.includes('\r\n\r\n')) {
      seen = seen.slice(seen.indexOf('\r\n\r\n') + 4)
      duplex.write(ANSWER)
    }
  })
}

async function goOnline(names: readonly string[], authtoken: string, at: number): Promise<void> {
  const [first = ''] = names
  const metadata = JSON.stringify({ device_id: first, instance: `process of ${first}` })
  const device: Device = { authtoken, host: first, metadata }
  const address = addresses[at % addresses.length]
  if (!address) throw new Error('there are no gateways')
  const agent = await WireAgent.connect({ address, trust }, answer)
  await agent.authenticate(device)
  for (const host of names) await agent.bind({ host })
  void agent.closed.then(() => comeBack(names, authtoken, at + 1))
}

/** Tries each gateway in turn, and never gives up. */
async function comeBack(names: readonly string[], authtoken: string, first: number): Promise<void> {
  const backoff = new Backoff(AGAIN_MS)
  for (let at = first; ; at += 1) {
    await sleep(backoff.next())
    const isOnline = await goOnline(names, authtoken, at).then(
      () => true,
      () => false,
    )
    if (isOnline) return
  }
}

const waiting = [...devices.entries()]
async function connectWaiting(): Promise<void> {
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const [at, names] = next
    await goOnline(names, authtokens[at % authtokens.length] ?? '', at)
  }
}
await Promise.all(Array.from({ length: AT_ONCE }, connectWaiting))
process.send?.('online')
