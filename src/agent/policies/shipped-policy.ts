import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { packageRoot } from '../../base/file.ts'

/** Path of the default policy that is installed with the agent. */
export function shippedPolicyPath(): string {
  return join(packageRoot(), 'default-policy.json')
}

/** Returns the document as one line, undefined if the file is missing. */
export function shippedPolicy(): string | undefined {
  try {
    return JSON.stringify(JSON.parse(readFileSync(shippedPolicyPath(), 'utf8')))
  } catch {
    return undefined
  }
}
