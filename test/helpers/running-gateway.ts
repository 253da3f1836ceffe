import { readFileSync } from 'node:fs'
import ngrok, { type Listener, type Session } from '@ngrok/ngrok'
import { onTestFinished } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { withDeadline } from '../../src/base/deadline.ts'
import { formatListenAddress } from '../../src/base/listen-address.ts'
import type { Secret } from '../../src/base/secret.ts'
import { parseConfig } from '../../src/config.ts'
import { Gateway, type GatewayAddresses, type GatewayOptions } from '../../src/gateway/gateway.ts'
import { captureLog } from './captured-log.ts'
import { temporaryFolder } from './temporary-folder.ts'

/** Nothing that the SDK promises may hold up a test for longer. */
const SDK_MS = 60_000
/** On a session that is dead, closing hangs for good. */
const CLEANUP_MS = 300
const ANY_PORT = { host: '127.0.0.1', port: 0 }
/** The default settings of a gateway, on free ports. */
export const GATEWAY_DEFAULTS: Omit<GatewayOptions, 'log'> = {
  ...parseConfig({}).gateway,
  agentListen: ANY_PORT,
  httpListen: ANY_PORT,
  httpsListen: ANY_PORT,
  apiListen: ANY_PORT,
  clock: systemClock,
}

export interface RunningGateway {
  readonly gateway: Gateway
  readonly addresses: GatewayAddresses
  readonly dataDir: string
  /** May bind below `*.site.test`. */
  readonly authtoken: Secret
  readonly logText: () => string
}

export type RunningOptions = Partial<GatewayOptions> & {
  readonly authtoken?: Secret
  /** False: nothing is provisioned, and `authtoken` is taken as it is. */
  readonly provisions?: boolean
}

/** A gateway on free ports in a folder of its own, stopped with the running test. */
export async function startGateway(options: RunningOptions = {}): Promise<RunningGateway> {
  const dataDir = options.dataDir ?? temporaryFolder()
  const captured = captureLog()
  const gateway = new Gateway({
    ...GATEWAY_DEFAULTS,
    dataDir,
    log: captured.log,
    ...options,
  })
  onTestFinished(() => gateway.stop())
  const addresses = await gateway.start().catch(async (error: unknown) => {
    // Another one may want the folder.
    await gateway.stop()
    throw error
  })
  const { provisions = true, authtoken: given } = options
  const request = { domain: '*.site.test', name: 'site', authtoken: given }
  const authtoken = !provisions && given ? given : (await gateway.provision(request)).authtoken
  return { gateway, addresses, dataDir, authtoken, logText: captured.text }
}

export interface SdkOptions {
  readonly authtoken?: Secret
  readonly metadata?: string
  /** As the SDK does of itself; the session has to be closed before the gateway is gone. */
  readonly reconnects?: boolean
  readonly onStop?: () => void
  readonly onRestart?: () => void
  /** What stands in the field `Version` of an update that the gateway asks for. */
  readonly onUpdate?: (version: string) => void
}

/** Settles like an SDK promise, or fails in time. */
export const inTime = <T>(promise: Promise<T>, what = 'the SDK') =>
  withDeadline(promise, SDK_MS, what)

/** Connects the real SDK. Its own reconnect is off unless asked for: it would outlive the test. */
export async function connectSdk(
  { addresses, authtoken }: RunningGateway,
  options: SdkOptions = {},
): Promise<Session> {
  const builder = new ngrok.SessionBuilder()
    .authtoken((options.authtoken ?? authtoken).reveal())
    .serverAddr(formatListenAddress(addresses.agent).replace('127.0.0.1', 'localhost'))
    .caCert(readFileSync(addresses.caCertPath))
  if (!options.reconnects) builder.handleDisconnection(() => false)
  if (options.metadata !== undefined) builder.metadata(options.metadata)
  if (options.onStop) builder.handleStopCommand(options.onStop)
  if (options.onRestart) builder.handleRestartCommand(options.onRestart)
  const { onUpdate } = options
  if (onUpdate) builder.handleUpdateCommand(({ version }) => onUpdate(version))
  const session = await inTime(builder.connect(), 'connect')
  onTestFinished(() => withDeadline(session.close(), CLEANUP_MS, 'session.close').catch(() => {}))
  return session
}

/** Opens an endpoint, closed with the running test; its traffic has nowhere to go. */
export async function bind(session: Session, domain?: string): Promise<Listener> {
  const builder = session.httpEndpoint().forwardsTo('localhost:1')
  if (domain !== undefined) builder.domain(domain)
  const listener = await inTime(builder.listen(), 'listen')
  onTestFinished(() => withDeadline(listener.close(), CLEANUP_MS, 'listener.close').catch(() => {}))
  return listener
}

/** The service's code in an SDK error, such as `ERR_NGROK_334`. */
export async function sdkCode(promise: Promise<unknown>): Promise<string | undefined> {
  const error = await inTime(promise).then(
    () => undefined,
    (reason: Error) => reason,
  )
  return error && (/error_code: (ERR_NGROK_\d+)$/.exec(error.message)?.[1] ?? error.message)
}
