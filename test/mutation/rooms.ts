/** Files of one area that carry promises, and the tests that hold them to it. */
export interface Room {
  /** Globs below `src/`. */
  readonly mutate: readonly string[]
  /** Globs below `test/`; the quickest first, because the first test that fails ends a mutant. */
  readonly tests: readonly string[]
}

/**
 * What `npm run test:mutation` takes, by the name that it is asked for with. Only tests of this process
 * count: a mutant does not reach the built program or a child process.
 */
export const ROOMS: Readonly<Record<string, Room>> = {
  limit: {
    mutate: ['policy/limit/*.ts'],
    tests: [
      'policy/limit/{circuit,key-hash,owner-counts,shared-buckets,limiter-tables}.test.ts',
      'policy/limit/{sliding-window,bucket-table,full-table}.test.ts',
      'policy/actions/{circuit-breaker,rate-limit}.test.ts',
      'policy/limit/rate-limiter.test.ts',
    ],
  },
  link: {
    mutate: ['agent/{link,link-state,tunnel-state,tunnel-supervisor}.ts'],
    tests: ['agent/{link-state,tunnel-state,link,tunnel-supervisor}.test.ts'],
  },
  tunnels: {
    mutate: ['agent/tunnels.ts'],
    tests: ['agent/tunnels.test.ts', 'agent/agent.test.ts'],
  },
  ingress: {
    mutate: [
      'gateway/ingress/{exchange/{exchange*,*-way,name-search},common/incoming-request,device/http1-forward}.ts',
    ],
    tests: [
      // In memory: what they wait for comes at once, or not at all.
      'gateway/ingress/{exchange/*,device/http1-forward,common/incoming-request,judged,upgraded}.test.ts',
      'gateway/ingress/{parked,handed-on,verdict,silent-device,unwanted-body,device/dial-failure}.test.ts',
      'gateway/ingress/{common/local-reply,slow-reader}.test.ts',
      // Over sockets.
      'gateway/ingress/{late-verdict,hold,exchange,common/edge-error,cloud-endpoint,policy}.test.ts',
      'gateway/ingress/{interleavings,internal-ask}.test.ts',
    ],
  },
  streams: {
    mutate: ['gateway/streams/*.ts'],
    tests: [
      'gateway/streams/{eviction,shares,waiting-line,proxy-stream,stream-pool}.test.ts',
      'gateway/streams/{saturation,least-first,buffer-account}.test.ts',
      'gateway/streams/stream-slots.test.ts',
    ],
  },
  sessions: {
    mutate: ['gateway/agents/{session-table,binder}.ts'],
    tests: ['gateway/agents/{session-table,binder,agent-connection}.test.ts'],
  },
  muxado: {
    mutate: ['muxado/*.ts'],
    tests: [
      'muxado/{frame-codec,frame-writer,stream-duplex}.test.ts',
      'muxado/{rpc,heartbeat,session-stream,session-frames}.test.ts',
      'muxado/session.test.ts',
    ],
  },
  store: {
    mutate: ['store/{heal,damage,backup,recovery}.ts', 'store/journal/*.ts'],
    tests: [
      'store/journal/*.test.ts',
      'store/{heal,loss,loss-record,backup,database,migrations,read-only,full-disk}.test.ts',
    ],
  },
}
