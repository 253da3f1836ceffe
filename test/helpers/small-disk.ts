import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { temporaryFolder } from './temporary-folder.ts'

/** A file system of its own, gone with the running test. */
export interface SmallDisk {
  readonly folder: string
  remount(mode: 'ro' | 'rw'): void
  /** Makes the folder read-only although it has open files, until the returned function is called. */
  protect(): () => void
  unmount(): void
}

/** True where this user may mount: tests of full and read-only disks need a disk of their own. */
export function canMount(): boolean {
  const folder = mkdtempSync(join(tmpdir(), 'device-agent-mount-'))
  try {
    mount(folder, '64k')
    execFileSync('umount', [folder], { stdio: 'ignore' })
    return true
  } catch {
    return false
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** The disk is mounted at `folder`, which exists. */
export function mountSmallDisk(size: string, folder = temporaryFolder()): SmallDisk {
  mount(folder, size)
  let isMounted = true
  const unmount = () => {
    // Lazy: a test may close its database only after this.
    if (isMounted) execFileSync('umount', ['-l', folder], { stdio: 'ignore' })
    isMounted = false
  }
  onTestFinished(unmount)
  return {
    folder,
    unmount,
    protect: () => {
      execFileSync('mount', ['--bind', folder, folder])
      execFileSync('mount', ['-o', 'remount,bind,ro', folder])
      return () => void execFileSync('umount', [folder])
    },
    remount: (mode) => execFileSync('mount', ['-o', `remount,${mode}`, folder]),
  }
}

function mount(folder: string, size: string): void {
  const options = `size=${size},mode=0700`
  execFileSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', folder], { stdio: 'ignore' })
}
