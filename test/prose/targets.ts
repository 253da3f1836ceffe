import type { Figures } from './measure.ts'

/** Upper bounds; see `Figures` and `measureComments` for the units. */
export type Target = Readonly<Record<string, number>>

/** One row of the report: files that are measured together. */
export interface Group {
  readonly name: string
  readonly kind: 'page' | 'texts' | 'comments'
  /** A page; or the beginnings of paths: a source file belongs to the longest that fits. */
  readonly paths: readonly string[]
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
  page('CHANGELOG.md', true),
  page('CONTRIBUTING.md', true),
  page('SECURITY.md', true),
  page('docs/README.md', true),
  page('docs/getting-started/container.md', true),
  page('docs/getting-started/gateway-on-a-server.md', true),
  page('docs/getting-started/hosted-service.md', true),
  page('docs/getting-started/install.md', true),
  page('docs/getting-started/raspberry-pi.md', true),
  page('docs/getting-started/try.md', true),
  page('docs/guides/backup-and-restore.md', true),
  page('docs/guides/cameras-and-web-apps.md', true),
  page('docs/guides/device.md', true),
  page('docs/guides/error-pages.md', true),
  page('docs/guides/fleets.md', true),
  page('docs/guides/grpc.md', true),
  page('docs/guides/notifications.md', true),
  page('docs/guides/pools.md', true),
  page('docs/guides/rate-limits.md', true),
  page('docs/guides/several-gateways.md', true),
  page('docs/guides/sign-in.md', true),
  page('docs/guides/ssh-and-tcp.md', true),
  page('docs/guides/troubleshooting.md', true),
  page('docs/guides/update.md', true),
  page('docs/internals/cluster.md', true),
  page('docs/internals/extend.md', true),
  page('docs/internals/overview.md', true),
  page('docs/internals/request-path.md', true),
  page('docs/internals/state-and-storage.md', true),
  page('docs/reference/agent-api.md', true),
  page('docs/reference/commands.md', true),
  page('docs/reference/compatibility.md', true),
  page('docs/reference/errors.md', true),
  page('docs/reference/gateway.md', true),
  page('docs/reference/management-api.md', true),
  page('docs/reference/metrics.md', true),
  page('docs/reference/policies.md', true),
  page('docs/reference/policy-actions.md', true),
  page('docs/reference/settings.md', true),
  page('bench/README.md', true),
  page('test/README.md', true),
  page('test/chaos/README.md', true),
  texts('settings', ['src/settings/', 'src/config.ts']),
  texts('commands', ['src/cli/', 'src/main.ts', 'src/daemon.ts']),
  texts('agent', ['src/agent/', 'src/base/', 'src/join/']),
  texts('agent API', ['src/api/', 'src/http/']),
  texts('device page', ['src/api/page-assets/', 'src/http/pages/']),
  texts('gateway', ['src/gateway/', 'src/muxado/', 'src/store/']),
  texts('errors at the edge', ['src/gateway/ingress/']),
  texts('management API', ['src/gateway/management/', 'src/gateway/resources/']),
  texts('console', ['src/gateway/management/console-assets/']),
  texts('policies', ['src/policy/']),
  { name: 'comments', kind: 'comments', paths: ['src/'], isEnforced: true },
]
