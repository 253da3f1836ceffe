import { BaseSequencer, type TestSpecification } from 'vitest/node'

/** Ends of the names of files that take longest, and their seconds beside two others on two quiet cores. */
const SECONDS: Readonly<Record<string, number>> = {
  'browser/console': 90,
  'ingress/keep-alive': 60,
  'chaos/three-truths': 60,
  'cluster/gateways': 60,
  'cluster/cut-off': 60,
  'browser/device-page': 55,
  'agent/tunnels': 45,
  'nodes/cluster': 45,
  'names/cluster': 45,
  'device/hop-contract': 45,
  'cluster/failures': 40,
  'agent/agent': 40,
  'agent/ngrok-connector': 40,
  'ingress/weak-services': 40,
  'e2e/logs-command': 40,
  'names/random-steps': 35,
  'cluster/acme': 35,
  'names/takeovers': 30,
  'ingress/odd-chunks': 30,
  'corruption/corruption': 30,
  'browser/walk': 30,
  'browser/nodes': 30,
  'e2e/doctor': 30,
  'replication/shared-database': 25,
  'actions/openid-connect': 25,
  'e2e/local-commands': 25,
  'e2e/token-command': 25,
}

/** Begins with the slow files: one that begins last would run alone. */
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
