import { spawn, spawnSync } from 'node:child_process'
import { LinkProxies } from './link-proxies.ts'
import { LinkedNamespaces, PACKET_LINK } from './linked-namespaces.ts'
import type { Rig } from './rig.ts'

const IN_NAMESPACE = 'LINKS_IN_NAMESPACE'
const UNSHARE = [
  ['unshare', '--net'],
  ['unshare', '--user', '--map-root-user', '--net'],
] as const

/**
 * Runs this process again in a network namespace of its own where the machine allows that; it then
 * ends with the exit code of that run. `LINKS_PROXY=1` does without namespaces.
 */
export async function enterNamespace(): Promise<void> {
  if (process.env[IN_NAMESPACE] || process.env.LINKS_PROXY) return
  const isAllowed = ([file, ...words]: readonly string[]) =>
    spawnSync(file ?? '', [...words, 'python3', PACKET_LINK, '--check']).status === 0
  const way = UNSHARE.find(isAllowed)
  if (!way) return
  const [file, ...words] = way
  const again = [process.execPath, ...process.execArgv, ...process.argv.slice(1)]
  const child = spawn(
    file,
    [...words, 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh', ...again],
    {
      stdio: 'inherit',
      env: { ...process.env, [IN_NAMESPACE]: '1' },
    },
  )
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => child.kill(signal))
  const code = await new Promise<number>((resolve) =>
    child.once('exit', (ended) => resolve(ended ?? 1)),
  )
  process.exit(code)
}

/** Packets that are delayed where `enterNamespace()` has found that possible, else a TCP proxy. */
export function openRig(): Promise<Rig> {
  return process.env[IN_NAMESPACE] ? LinkedNamespaces.open() : LinkProxies.open()
}
