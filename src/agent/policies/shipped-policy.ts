import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { packageRoot } from '../../base/file.ts'

/** The default policy that comes with the agent. */
export function shippedPolicyPath(): string {
  return join(packageRoot(), 'default-policy.json')
}

/** Its document as one line, or undefined where somebody took it away. */
export function shippedPolicy(): string | undefined {
  try {
    return JSON.stringify(JSON.parse(readFileSync(shippedPolicyPath(), 'utf8')))
  } catch {
    return undefined
  }
}
