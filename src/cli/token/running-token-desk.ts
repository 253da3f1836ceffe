import * as z from 'zod'
import { NewTokenView, TokenView } from '../../api/token-view.ts'
import type { LocalAgent } from '../local/local-agent.ts'

/** The tokens of an agent that runs, through its socket: whoever may open that needs none of them. */
export function runningTokenDesk(agent: LocalAgent) {
  const pathOf = (name: string) => `/tokens/${encodeURIComponent(name)}`
  return {
    list: () => agent.ask({ path: '/tokens' }, z.array(TokenView)),
    create: (body: object) => agent.ask({ method: 'POST', path: '/tokens', body }, NewTokenView),
    rotate: (name: string, body: object) =>
      agent.ask({ method: 'POST', path: `${pathOf(name)}/rotate`, body }, NewTokenView),
    revoke: async (name: string) => {
      await agent.ask({ method: 'DELETE', path: pathOf(name) }, z.undefined())
    },
  }
}
