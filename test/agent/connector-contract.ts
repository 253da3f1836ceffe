import { describe, expect, it, onTestFinished } from 'vitest'
import type {
  Connector,
  ConnectRequest,
  EndpointRequest,
  ServiceCommand,
  Session,
} from '../../src/agent/connector.ts'
import { type Problem, ProblemError } from '../../src/agent/problem.ts'
import { Secret } from '../../src/base/secret.ts'
import { eventually } from '../helpers/eventually.ts'

/** A service with its connector, and what only the service's side can do. */
export interface ContractSubject {
  readonly connector: Connector
  readonly authtoken: Secret
  readonly serverAddr: string | undefined
  readonly caCert: string | undefined
  /** May be opened with the token. */
  readonly domains: readonly [string, string]
  /** Domains that are open at the service now. */
  online(): string[]
  /** Breaks every connection to the service. */
  cut(): void
  /** The service closes one endpoint, as for a credential that was narrowed. */
  drop(domain: string): void
  /** The service tells every agent that is connected. */
  command(command: ServiceCommand): Promise<void>
}

interface Connected {
  readonly session: Session
  readonly lost: Problem[]
  readonly beats: number[]
  readonly commands: ServiceCommand[]
}

/** What the agent relies on, whoever is behind the port. */
export function describeConnector(name: string, setUp: () => Promise<ContractSubject>): void {
  async function connect(
    subject: ContractSubject,
    change: Partial<ConnectRequest> = {},
  ): Promise<Connected> {
    const lost: Problem[] = []
    const beats: number[] = []
    const commands: ServiceCommand[] = []
    const { connector, authtoken, serverAddr, caCert } = subject
    const session = await connector.connect({
      authtoken,
      serverAddr,
      caCert,
      metadata: '{}',
      onLost: (problem) => lost.push(problem),
      onHeartbeat: (latencyMs) => beats.push(latencyMs),
      onCommand: (command) => commands.push(command),
      onDuplicate: () => {},
      ...change,
    })
    onTestFinished(() => session.close())
    return { session, lost, beats, commands }
  }

  function endpoint(domain: string, dropped: Problem[] = []): EndpointRequest {
    return {
      domain,
      dialUrl: 'http://localhost:9',
      forwardsTo: 'localhost:9',
      policy: '{}',
      onDropped: (problem) => dropped.push(problem),
    }
  }

  async function problemFrom(promise: Promise<unknown>): Promise<Problem> {
    const error = await promise.catch((reason: unknown) => reason)
    expect(error).toBeInstanceOf(ProblemError)
    return (error as ProblemError).problem
  }

  describe(`${name} as a connector`, () => {
    it('opens endpoints, says their URLs, and closes them one by one', async () => {
      const subject = await setUp()
      const [a, b] = subject.domains
      const { session } = await connect(subject)
      const first = await session.open(endpoint(a))
      await session.open(endpoint(b))
      expect(new URL(first.url).hostname).toBe(a)
      expect(subject.online().sort()).toEqual([a, b].sort())
      await first.close()
      expect(subject.online()).toEqual([b])
      await first.close()
      await session.open(endpoint(a))
      expect(subject.online().sort()).toEqual([a, b].sort())
    })

    it('refuses a wrong token as auth, without repeating it', async () => {
      const subject = await setUp()
      const authtoken = new Secret('2canaryCANARYcanary_1wrong')
      const problem = await problemFrom(connect(subject, { authtoken }))
      expect(problem).toMatchObject({ reason: 'auth', permanent: true })
      expect(problem.serviceCode).toMatch(/^ERR_NGROK_\d+$/)
      expect(JSON.stringify(problem)).not.toContain('canary')
    })

    it('refuses a domain that another session has as conflict', async () => {
      const subject = await setUp()
      const [domain, other] = subject.domains
      const first = await connect(subject)
      await first.session.open(endpoint(domain))
      const second = await connect(subject)
      const problem = await problemFrom(second.session.open(endpoint(domain)))
      expect(problem).toMatchObject({ reason: 'conflict', serviceCode: 'ERR_NGROK_334' })
      await second.session.open(endpoint(other))
      expect(second.lost).toEqual([])
    })

    it('says once when the link breaks, and then opens nothing', async () => {
      const subject = await setUp()
      const [a, b] = subject.domains
      const dropped: Problem[] = []
      const { session, lost } = await connect(subject)
      await session.open(endpoint(a, dropped))
      subject.cut()
      await eventually(() => expect(lost).toHaveLength(1))
      expect(lost[0]).toMatchObject({ reason: 'network', permanent: false })
      await problemFrom(session.open(endpoint(b)))
      await session.close()
      expect(lost).toHaveLength(1)
      expect(dropped).toEqual([])
    })

    it('says when the service closes one endpoint, and keeps the others', async () => {
      const subject = await setUp()
      const [a, b] = subject.domains
      const dropped: Problem[] = []
      const { session, lost } = await connect(subject)
      const listener = await session.open(endpoint(a, dropped))
      await session.open(endpoint(b))
      subject.drop(a)
      await eventually(() => expect(dropped).toHaveLength(1))
      expect(dropped[0]).toMatchObject({ reason: 'auth', serviceCode: 'ERR_NGROK_300' })
      expect(lost).toEqual([])
      expect(subject.online()).toEqual([b])
      await listener.close()
      await session.open(endpoint(a))
    })

    it('hands on what the service asks for, and leaves the session as it is', async () => {
      const subject = await setUp()
      const { session, lost, commands } = await connect(subject)
      await subject.command('restart')
      await subject.command('stop')
      await eventually(() => expect(commands).toEqual(['restart', 'stop']))
      await session.open(endpoint(subject.domains[0]))
      expect(subject.online()).toEqual([subject.domains[0]])
      expect(lost).toEqual([])
    })

    it('takes its endpoints along when it closes, and is quiet afterwards', async () => {
      const subject = await setUp()
      const [a, b] = subject.domains
      const dropped: Problem[] = []
      const { session, lost } = await connect(subject)
      await session.open(endpoint(a, dropped))
      await session.open(endpoint(b, dropped))
      await session.close()
      expect(subject.online()).toEqual([])
      await session.close()
      subject.cut()
      const { session: next } = await connect(subject)
      await next.open(endpoint(a))
      expect([...lost, ...dropped]).toEqual([])
    })
  })
}
