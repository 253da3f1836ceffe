import type { ConnectedAgent } from '../../endpoints/connected-agent.ts'
import type { BotUserStore } from '../../records/bot-user-store.ts'
import type { CredentialStore } from '../../records/credential-store.ts'
import { type EndpointsDeps, endpoints } from '../endpoints.ts'
import type { Resource } from '../resource.ts'
import { type ConnectedAgents, tunnelSessions } from '../tunnel-sessions.ts'

export interface DevicesDeps extends EndpointsDeps {
  readonly sessions: ConnectedAgents
  readonly credentials: CredentialStore
  readonly botUsers: BotUserStore
}

/**
 * The agent sessions once more, each with its endpoints and its owner in full: what the console
 * shows and refreshes all the time takes one request instead of one for each endpoint.
 */
export function devices(deps: DevicesDeps): Resource<ConnectedAgent> {
  const sessions = tunnelSessions(deps)
  const { view: viewEndpoint } = endpoints(deps)
  return {
    ...sessions,
    path: 'device_sessions',
    collection: 'device_sessions',
    view: (agent, baseUrl) => ({
      ...sessions.view(agent, baseUrl),
      owner: ownerOf(agent, deps),
      endpoints: agent.endpoints().map((endpoint) => viewEndpoint(endpoint, baseUrl)),
    }),
  }
}

function ownerOf({ identity }: ConnectedAgent, { credentials, botUsers }: DevicesDeps): object {
  const credential = credentials.get(identity.credentialId)
  const botUser = credential?.ownerId ? botUsers.get(credential.ownerId) : undefined
  return { authtoken: credential?.description ?? '', bot_user: botUser?.name ?? null }
}
