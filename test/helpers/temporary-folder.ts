import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'

/** A fresh folder that goes away with the running test. */
export function temporaryFolder(): string {
  const path = mkdtempSync(join(tmpdir(), 'device-agent-'))
  onTestFinished(() => rmSync(path, { recursive: true, force: true }))
  return path
}
