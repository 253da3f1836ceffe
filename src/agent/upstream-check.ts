/** Whether the local service takes connections; `unknown` until it was tried often enough. */
export type Upstream = 'up' | 'down' | 'unknown'
