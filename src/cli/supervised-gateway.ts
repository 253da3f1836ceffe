import { StartError } from '../base/app-error.ts'
import type { Closer } from '../base/closer.ts'
import { formatListenAddress, type ListenAddress } from '../base/listen-address.ts'
import type { GatewayParts } from '../gateway/gateway.ts'
import { storageProblems } from '../store/storage-view.ts'
import { type GatewayService, type GatewayServiceOptions, startGateway } from './gateway-service.ts'
import { ProcessReload } from './reload/process-reload.ts'
import { Supervision, type SupervisionOptions } from './service/supervision.ts'

const ONE_OF_SEVERAL =
  'a gateway of a cluster cannot be reloaded. Use systemctl restart device-gateway, which drains it first'

export type SupervisedGatewayOptions = GatewayServiceOptions & SupervisionOptions

export interface SupervisedGateway extends GatewayService {
  readonly reload: ProcessReload
}

/** The gateway with the service manager told how it is. */
export async function startSupervisedGateway(
  options: SupervisedGatewayOptions,
  closer: Closer,
): Promise<SupervisedGateway> {
  const supervision = await Supervision.open(options, closer)
  const service = await startGateway(options, closer)
  const { gateway } = service
  const { config, log } = options
  const { agentListen, httpListen, httpsListen, apiListen } = config
  const listens = [agentListen, httpListen, httpsListen, apiListen]
  const reload = closer.own(
    'reload',
    new ProcessReload({
      service: {
        release: () => gateway.release(),
        reclaim: () => gateway.reclaim(),
        handOver: () => gateway.handOver(),
        sockets: () => listens.map(inheritedSocket),
      },
      ...{ news: supervision, environment: () => process.env, log },
      // Two processes would be one node twice, and the others serve meanwhile.
      refusal: () => config.shared && ONE_OF_SEVERAL,
    }),
    (it) => it.stop(),
  )
  const { database } = gateway.parts
  const sentence = () => [sentenceOf(gateway.parts), reload.problem ?? []].flat().join('; ')
  const onChange = (listener: () => void) => onOtherCounts(gateway.parts, listener)
  supervision.ready({ database, sentence, onChange }, closer)
  return { ...service, reload }
}

function inheritedSocket({ fd, ...address }: ListenAddress): number {
  if (fd !== undefined) return fd
  const where = formatListenAddress(address)
  const remedy = 'run device-agent service install --gateway, or restart the gateway instead'
  throw new StartError(`a reload needs device-gateway.socket to listen on ${where}: ${remedy}`)
}

const COMMANDS = {
  confirm: 'device-agent storage confirm --gateway',
  restore: 'device-agent gateway restore',
}

/** For example `2 agents connected, 5 endpoints online`, and problems of the storage. */
function sentenceOf({ sessions, registry, database }: GatewayParts): string {
  const online = `${count(sessions.agentCount, 'agent')} connected, ${count(registry.size, 'endpoint')} online`
  const report = database.report()
  const problems = storageProblems(report, COMMANDS)
  return [online, ...problems, report.risk?.text ?? []].flat().join('; ')
}

const LOOK_MS = 1_000

/** Calls the listener when other numbers of agents or endpoints are online; returns how to stop that. */
function onOtherCounts({ sessions, registry }: GatewayParts, listener: () => void): () => void {
  const counts = () => `${sessions.agentCount} ${registry.size}`
  let known = counts()
  const timer = setInterval(() => {
    if (counts() === known) return
    known = counts()
    listener()
  }, LOOK_MS).unref()
  return () => clearInterval(timer)
}

const count = (number: number, noun: string) => `${number} ${noun}${number === 1 ? '' : 's'}`
