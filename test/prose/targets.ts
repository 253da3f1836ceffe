import type { Figures } from './measure.ts'

/** Upper bounds; see `Figures` and `measureComments` for the units. */
export type Target = Readonly<Record<string, number>>

/** One row of the report: files that are measured together. */
export interface Group {
  readonly name: string
  readonly kind: 'page' | 'texts' | 'comments'
  /** A page; or the beginnings of paths: a source file belongs to the longest that fits. */
  readonly paths: readonly string[]
  /** Of a page, only the section with this heading. */
  readonly section?: string
  /** `.ci/run` fails when an enforced group misses its target. */
  readonly isEnforced: boolean
}

type Bounds = Partial<Record<keyof Figures | 'longCells', number>>
const PROSE = { mean: 14, p90: 24, over25: 7, pronouns: 5 } as const satisfies Bounds

export const TARGETS: Readonly<Record<Group['kind'], Target>> = {
  page: { ...PROSE, longCells: 0.5 },
  texts: PROSE,
  comments: { indirect: 2, pronouns: 8 },
}

/** Modules whose literals are scripts for a shell. */
export const NOT_TEXTS = ['src/cli/usage/shell-completion.ts']

const page = (path: string, isEnforced = false): Group => {
  return { name: path, kind: 'page', paths: [path], isEnforced }
}
const texts = (name: string, paths: readonly string[]): Group => {
  return { name: `texts: ${name}`, kind: 'texts', paths, isEnforced: true }
}

/** All that is measured. A group that meets its target becomes an enforced one, and stays one. */
export const GROUPS: readonly Group[] = [
  page('README.md', true),
  {
    name: 'CHANGELOG.md, Unreleased',
    kind: 'page',
    paths: ['CHANGELOG.md'],
    section: 'Unreleased',
    isEnforced: true,
  },
  page('CONTRIBUTING.md', true),
  page('SECURITY.md'),
  page('docs/agent-api.md'),
  page('docs/architecture.md'),
  page('docs/compatibility.md'),
  page('docs/fleet.md'),
  page('docs/gateway.md'),
  page('docs/grpc.md'),
  page('docs/login.md'),
  page('docs/management-api.md'),
  page('docs/metrics.md'),
  page('docs/operations.md'),
  page('docs/policies.md'),
  page('docs/pools.md'),
  page('docs/settings.md'),
  page('docs/several-gateways.md'),
  page('docs/tcp-and-tls.md'),
  page('docs/technician.md'),
  page('docs/troubleshooting.md'),
  page('bench/README.md'),
  page('test/README.md'),
  page('test/chaos/README.md'),
  texts('settings', ['src/settings.ts', 'src/config.ts']),
  texts('commands', ['src/cli/', 'src/main.ts', 'src/daemon.ts']),
  texts('agent', ['src/agent/', 'src/base/']),
  texts('agent API', ['src/api/', 'src/http/']),
  texts('device page', ['src/api/page-assets/', 'src/http/pages/']),
  texts('gateway', ['src/gateway/', 'src/muxado/', 'src/store/']),
  texts('errors at the edge', ['src/gateway/ingress/']),
  texts('management API', ['src/gateway/management/']),
  texts('console', ['src/gateway/management/console-assets/']),
  texts('policies', ['src/policy/']),
  { name: 'comments', kind: 'comments', paths: ['src/'], isEnforced: true },
]
