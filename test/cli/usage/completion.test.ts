import { spawnSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { createProgram } from '../../../src/cli/program.ts'
import { everyCommand, shapeOf } from '../../../src/cli/usage/command-shape.ts'
import { BashSession } from '../../helpers/bash-session.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

/** What the program prints on stdout. */
async function printed(...args: string[]): Promise<string> {
  const stdout = new PassThrough()
  const stderr = new PassThrough()
  const stop = new AbortController().signal
  const program = createProgram({ environment: {}, stdout, stderr, stop })
  await program.parseAsync(args, { from: 'user' })
  stdout.end()
  return text(stdout)
}

const program = () => {
  const stdout = new PassThrough()
  const stop = new AbortController().signal
  return createProgram({ environment: {}, stdout, stderr: stdout, stop })
}

/** Every option and every command, at the place where it may be typed. */
const typable = [...everyCommand(shapeOf(program()))].flatMap(({ words, shape }) => [
  ...shape.commands.map(({ name }) => [...words, name]),
  ...shape.options.flatMap(({ names }) => names.map((name) => [...words, name])),
])

const ALL = '\x1b*'

describe('in bash', () => {
  const start = async () => BashSession.start('device-agent', await printed('completion', 'bash'))

  it('completes a command, and one below it', async () => {
    const bash = await start()
    expect(await bash.type('device-agent tun\tsh\tcam')).toEqual(['tunnels', 'show', 'cam'])
  })

  it('knows every command and option where it belongs, and none elsewhere', async () => {
    const bash = await start()
    for (const { words, shape } of everyCommand(shapeOf(program()))) {
      const line = ['device-agent', ...words].join(' ')
      const offered = await bash.type(`${line} -${ALL}`)
      const options = shape.options.flatMap(({ names }) => names)
      expect(offered.slice(words.length).sort(), line).toEqual(options.sort())
      if (shape.commands.length === 0) continue
      const commands = await bash.type(`${line} ${ALL}`)
      expect(commands.slice(words.length).sort(), line).toEqual(
        shape.commands.map(({ name }) => name).sort(),
      )
    }
    expect(typable.length).toBeGreaterThan(80)
  })

  it('completes words that an option or an argument takes', async () => {
    const bash = await start()
    const scope = ['token', 'create', '--scope', 'read', 'write']
    expect(await bash.type(`device-agent token create --scope ${ALL}`)).toEqual(scope)
    expect(await bash.type('device-agent token create --scope=wr\t x')).toEqual([
      ...scope.slice(0, 2),
      '--scope=write',
      'x',
    ])
    expect(await bash.type('device-agent completion f\t')).toEqual(['completion', 'fish'])
  })

  it('completes files and folders where they belong', async () => {
    const bash = await start()
    mkdirSync(join(bash.folder, 'a folder'))
    writeFileSync(join(bash.folder, 'a policy.yaml'), '')
    expect(await bash.type('device-agent policy check a\\ p\t')).toEqual([
      'policy',
      'check',
      'a policy.yaml',
    ])
    expect(await bash.type('device-agent tunnels list --data-dir a\t')).toEqual([
      'tunnels',
      'list',
      '--data-dir',
      'a folder/',
    ])
    expect(await bash.type('device-agent tunnels set cam --policy a\\ p\t')).toEqual([
      ...['tunnels', 'set', 'cam', '--policy'],
      'a policy.yaml',
    ])
    // The second argument, behind an option that took a value of its own.
    expect(await bash.type('device-agent tunnels set-policy --data-dir x cam a\\ p\t')).toEqual([
      ...['tunnels', 'set-policy', '--data-dir', 'x', 'cam'],
      'a policy.yaml',
    ])
  })

  it('offers nothing where any text may stand', async () => {
    const bash = await start()
    writeFileSync(join(bash.folder, 'cam'), '')
    expect(await bash.type('device-agent tunnels show c\t')).toEqual(['tunnels', 'show', 'c'])
    expect(await bash.type('device-agent tunnels list re\t')).toEqual(['tunnels', 'list', 're'])
  })
})

const isThere = (shell: string) => spawnSync(shell, ['--version']).error === undefined

describe.each(['zsh', 'fish'])('for %s', (shell) => {
  it('has every command and option', async () => {
    const script = await printed('completion', shell)
    for (const words of typable) {
      const last = words.at(-1)?.replace(/^-+/, '') ?? ''
      expect(script, words.join(' ')).toMatch(new RegExp(`[' -]${last}[=':\\[) ]`))
    }
  })

  it.runIf(isThere(shell))('is a script that the shell reads', async () => {
    const path = join(temporaryFolder(), 'script')
    writeFileSync(path, await printed('completion', shell))
    const { status, stderr } = spawnSync(shell, ['-n', path], { encoding: 'utf8' })
    expect([status, stderr]).toEqual([0, ''])
  })
})

it.runIf(isThere('fish'))('completes in fish', async () => {
  const path = join(temporaryFolder(), 'device-agent.fish')
  writeFileSync(path, await printed('completion', 'fish'))
  const offered = (line: string) =>
    spawnSync('fish', ['--no-config', '-c', `source ${path}; complete -C '${line}'`], {
      encoding: 'utf8',
    })
      .stdout.trim()
      .split('\n')
      .map((row) => row.split('\t')[0])
  expect(offered('device-agent tunnels sh')).toEqual(['show'])
  expect(offered('device-agent token create --scope ')).toEqual(['read', 'write'])
  expect(offered('device-agent token create --sc')).toEqual(['--scope'])
  expect(offered('device-agent tunnels show x')).toEqual([''])
})

describe('the manual', () => {
  it('has every command, option and setting', async () => {
    const page = await printed('man')
    for (const words of typable) {
      expect(page.replaceAll('\\', '')).toContain(words.at(-1))
    }
    expect(page).toContain('.SS "tunnels set\\-policy \\fI<tunnel> [file]\\fR"')
    expect(page).toContain('.SS "gateway"')
    expect(page).not.toContain('.SS "tunnels"')
    expect(page).toContain('\\fBGATEWAY_HTTP_LISTEN\\fR')
    expect(page).toMatch(/^\.TH DEVICE-AGENT 1 /)
  })

  it.runIf(isThere('groff'))('is one that groff takes without a word', async () => {
    const { status, stderr, stdout } = spawnSync(
      'groff',
      ['-man', '-Tutf8', '-ww', '-rCHECKSTYLE=3'],
      { input: await printed('man'), encoding: 'utf8' },
    )
    expect([status, stderr]).toEqual([0, ''])
    expect(stdout).toContain('device-agent')
  })
})
