/**
 * `npm run test:image [-- FILE]`: runs the container image with podman and runc: both roles, volumes, secrets,
 * stop, kill, upgrade, a foreign user, a read-only root. Without FILE, an image for this machine is built first.
 * Needs root, podman, runc, netavark and aardvark-dns. It does not test docker, containerd, rootless podman or
 * SELinux, and runs the image of the other architecture only where the kernel starts its programs (binfmt_misc).
 */
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { ROOT } from '../../packaging/project.ts'
import { tryCompose } from './compose.ts'
import { Engine, expectDone, run } from './engine.ts'
import { House } from './house.ts'
import { TRIALS } from './trials.ts'

const TOOLS = ['podman', 'runc', 'netavark', 'aardvark-dns', 'iptables', 'podman-compose']
const arch = process.arch === 'arm64' ? 'arm64' : 'x64'

function say(text: string): void {
  process.stdout.write(`${text}\n`)
}

function complain(text: string): void {
  process.stderr.write(`${text}\n`)
}

async function requireTools(): Promise<void> {
  const there = await run('dpkg-query', ['--show', ...TOOLS])
  if (there.code === 0) return
  say(`installs ${TOOLS.join(', ')}, which only this test uses`)
  const env = { DEBIAN_FRONTEND: 'noninteractive' }
  const args = ['install', '--yes', '--no-install-recommends', ...TOOLS]
  expectDone('apt-get install', await run('apt-get', args, env))
}

async function build(folder: string): Promise<string> {
  const args = ['packaging/main.ts', '--only', 'image', '--arch', arch, '--output', folder]
  expectDone('npm run package', await run(join(ROOT, 'node_modules/.bin/tsx'), args))
  const [file] = readdirSync(folder).filter((it) => it.endsWith('.oci.tar'))
  if (file === undefined) throw new Error('npm run package made no image')
  return join(folder, file)
}

if (process.getuid?.() !== 0)
  throw new Error('Run npm run test:image as root: it starts containers.')
await requireTools()
const work = mkdtempSync('/var/tmp/device-agent-image-')
let engine: Engine | undefined
try {
  const archive = process.argv[2]
    ? resolve(process.argv[2])
    : await timed('build', () => build(work))
  say(`${(statSync(archive).size / 1e6).toFixed(1)} MB  ${archive}`)
  const loaded = await timed('podman load', () => Engine.load(work, archive))
  engine = loaded
  const house = new House(loaded, work)
  for (const trial of TRIALS) await timed(trial.name, () => trial.run(house, work))
  await timed('the compose files for a gateway and an agent', () => tryCompose(loaded, work))
} catch (error) {
  process.exitCode = 1
  complain(String((error as Error).stack))
  if (engine) {
    const names = (await engine.podman('ps', '--all', '--format', '{{.Names}}')).trim().split('\n')
    for (const name of names) complain(`--- ${name}\n${(await engine.log(name)).slice(-2_000)}`)
  }
} finally {
  await engine?.end()
  rmSync(work, { recursive: true, force: true })
}
say(process.exitCode ? 'the image FAILED' : 'the image works')

async function timed<T>(name: string, work: () => Promise<T>): Promise<T> {
  const startedAt = performance.now()
  const result = await work()
  say(`ok ${((performance.now() - startedAt) / 1_000).toFixed(1).padStart(6)} s  ${name}`)
  return result
}
