import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { StartError } from '../../../src/base/app-error.ts'
import { readPageFolder } from '../../../src/gateway/error-pages/page-folder.ts'
import { MAX_PAGE_BYTES } from '../../../src/gateway/error-pages/page-template.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const VALUES = {
  status: 503,
  title: 'T',
  message: 'M',
  host: 'a.test',
  requestId: 'id',
  code: undefined,
  retryAfterS: undefined,
}

function folderWith(files: Readonly<Record<string, string | Buffer>>): string {
  const folder = temporaryFolder()
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content)
  return folder
}

describe('the folder of error pages', () => {
  it('has a page for each kind that has a file, and may have other files', () => {
    const folder = folderWith({
      'offline.html': '\ufeff<h1>{{title}}</h1>',
      'default.html': 'D',
      'README.md': '{{what}}',
    })
    const pages = readPageFolder(folder)
    expect([...pages.keys()].sort()).toEqual(['default', 'offline'])
    expect(pages.get('offline')?.render(VALUES)).toBe('<h1>T</h1>')
    expect(readPageFolder(undefined).size).toBe(0)
  })

  it.each([
    [
      'a placeholder that is unknown',
      { 'busy.html': 'a\n{{upstream}}' },
      /busy\.html: Line 2, column 1: .*upstream/,
    ],
    [
      'a name that is unknown',
      { 'offlin.html': 'x' },
      /offlin\.html: the name is unknown\. Names are unknown\.html/,
    ],
    [
      'another encoding',
      { 'default.html': Buffer.from('Gerät', 'latin1') },
      /default\.html: it is not UTF-8\.$/,
    ],
    [
      'UTF-16',
      { 'default.html': Buffer.from('\ufeffHi', 'utf16le') },
      /default\.html: it is not UTF-8\.$/,
    ],
    [
      'a huge page',
      { 'default.html': 'x'.repeat(MAX_PAGE_BYTES + 1) },
      /it has 65537 bytes; at most 65536/,
    ],
    [
      'an empty page',
      { 'default.html': '' },
      /default\.html: Line 1, column 1: The page is empty\.$/,
    ],
  ])('is a fault with its name for %s', (_what, files, message) => {
    const read = () => readPageFolder(folderWith(files as Record<string, string>))
    expect(read).toThrow(StartError)
    expect(read).toThrow(message)
  })

  it('is a fault where it cannot be read', () => {
    expect(() => readPageFolder('/nowhere')).toThrow(
      '/nowhere: the folder cannot be read (ENOENT).',
    )
    const folder = temporaryFolder()
    mkdirSync(join(folder, 'busy.html'))
    expect(() => readPageFolder(folder)).toThrow('busy.html: it is not a file.')
    const dangling = temporaryFolder()
    symlinkSync('/nowhere', join(dangling, 'busy.html'))
    expect(() => readPageFolder(dangling)).toThrow('busy.html: it cannot be read (ENOENT).')
  })
})
