import type { Closer } from '../base/closer.ts'
import type { GatewayParts } from '../gateway/gateway.ts'
import { storageProblems } from '../store/storage-view.ts'
import { type GatewayService, type GatewayServiceOptions, startGateway } from './gateway-service.ts'
import { Supervision, type SupervisionOptions } from './service/supervision.ts'

export type SupervisedGatewayOptions = GatewayServiceOptions & SupervisionOptions

/** The gateway with the service manager told how it is. */
export async function startSupervisedGateway(
  options: SupervisedGatewayOptions,
  closer: Closer,
): Promise<GatewayService> {
  const supervision = await Supervision.open(options, closer)
  const service = await startGateway(options, closer)
  const { parts } = service.gateway
  supervision.ready({ database: parts.database, sentence: () => sentenceOf(parts) }, closer)
  return service
}

/** Such as `2 agents connected, 5 endpoints online`, and what is wrong with the storage. */
function sentenceOf({ sessions, registry, database }: GatewayParts): string {
  const online = `${count(sessions.size, 'agent')} connected, ${count(registry.size, 'endpoint')} online`
  const problems = storageProblems(database.report(), 'device-agent storage confirm --gateway')
  return [online, ...problems].join('; ')
}

const count = (number: number, noun: string) => `${number} ${noun}${number === 1 ? '' : 's'}`
