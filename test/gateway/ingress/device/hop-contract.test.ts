import { afterAll, vi } from 'vitest'

// What holds where visitors come in at the node of their endpoint has to hold behind another one.
vi.stubEnv('INGRESS_BEHIND_NODE', 'true')
// A worker loads what it runs once: these have to register their tests here, and where they are at home.
vi.resetModules()
afterAll(() => {
  vi.unstubAllEnvs()
  vi.resetModules()
})

await import('../exchange.test.ts')
await import('../exchange/upgrade.test.ts')
await import('../policy.test.ts')
await import('../visitor/http2-connection.test.ts')
