import type { AuthorityPem } from './cluster-authority.ts'
import type { KeptJoinToken } from './join-token.ts'

/** What all nodes of a cluster share so that they know each other; kept where all reach it. */
export interface ClusterMaterial {
  /** Keeps what was made unless there is an authority; answers the one that is kept. */
  keepAuthority(make: () => Promise<AuthorityPem>): Promise<AuthorityPem>
  keepJoinToken(token: KeptJoinToken): Promise<void>
  findJoinToken(id: string): Promise<KeptJoinToken | undefined>
  /** Marks a token as used, for good; false when it was before, also by somebody at the same time. */
  useJoinToken(id: string, nodeId: string): Promise<boolean>
}
