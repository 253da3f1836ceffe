import type { Endpoint } from '../endpoint.ts'

/**
 * Whether a node may serve an endpoint that it has. `unsure`: nobody knows yet, and whoever comes waits;
 * `none`: it is for another node.
 */
export type Tenure = 'firm' | 'unsure' | 'none'

/** What a node may serve, at this moment; asked for each visitor, and never waits. */
export interface Tenures {
  readonly nodeId: string
  of(endpoint: Endpoint): Tenure
}
