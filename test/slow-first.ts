import { BaseSequencer, type TestSpecification } from 'vitest/node'

/** Path ends of the slowest files, with their seconds beside three others on two cores. */
const SECONDS: Readonly<Record<string, number>> = {
  'cluster/gateways': 107,
  'browser/console': 86,
  'cluster/cut-off': 85,
  'chaos/three-truths': 83,
  'chaos/site': 73,
  'nodes/cluster': 71,
  'device/hop-contract': 68,
  'cluster/failures': 64,
  'ingress/keep-alive': 63,
  'browser/device-page': 58,
  'e2e/gateways': 58,
  'e2e/doctor': 48,
  'cluster/acme': 46,
  'e2e/tunnels': 44,
  'replication/shared-database': 44,
  'e2e/commands': 41,
  'e2e/support-bundle': 36,
  'ingress/odd-chunks': 35,
  'agent/ngrok-connector': 35,
  'e2e/local-commands': 35,
  'e2e/reload': 35,
  'ingress/weak-services': 35,
  'acme/acme-certificates': 34,
  'e2e/cloud-endpoint': 33,
  'corruption/corruption': 32,
  'cluster/returning': 32,
  'agent/http2-tunnels': 31,
  'names/takeovers': 30,
  'e2e/provision': 29,
  'chaos/thousand-tunnels': 29,
  'api/bad-input': 28,
  'cluster/moved-counts': 28,
  'names/cluster': 27,
  'ingress/sdk': 27,
  'webhooks/webhooks': 27,
  'console/console-sessions': 26,
  'e2e/public-client': 26,
  'e2e/crash': 24,
  'e2e/token-command': 24,
  'names/legs': 24,
  'ingress/policy': 24,
  'ingress/interleavings': 24,
  'visitor/ended-sessions': 22,
  'nodes/node-lease': 21,
}

/** Slow files first: a slow file at the end would run alone. */
export class SlowFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files)
    return sorted.toSorted((one, other) => secondsOf(other) - secondsOf(one))
  }
}

function secondsOf({ moduleId }: TestSpecification): number {
  const end = moduleId
    .replace(/\.test\.ts$/, '')
    .split('/')
    .slice(-2)
    .join('/')
  return SECONDS[end] ?? 0
}
