import { isBuiltin } from 'node:module'
import process from 'node:process'
import type { Plugin } from 'esbuild'

/**
 * Node's own modules, each asked for what is used of it. An import statement reads all of a module's
 * exports, and with some of them Node loads other modules that nobody uses.
 */
export const builtinModules: Plugin = {
  name: 'builtin modules',
  setup: ({ onResolve, onLoad }) => {
    onResolve({ filter: /^node:/ }, ({ path, kind }) =>
      kind === 'import-statement' && isBuiltin(path) ? { path, namespace: 'builtin' } : undefined,
    )
    onLoad({ filter: /./, namespace: 'builtin' }, ({ path }) => ({ contents: asked(path) }))
  },
}

const IDENTIFIER = /^[a-z_$][\w$]*$/i

/** Every name of the module, of which the bundler keeps those that are used. */
function asked(path: string): string {
  const names = Object.keys(process.getBuiltinModule(path) ?? {}).filter(
    (name) => IDENTIFIER.test(name) && name !== 'default',
  )
  return [
    `const builtin = process.getBuiltinModule('${path}')`,
    'const ask = (name) => builtin[name]',
    ...names.map((name) => `const asked_${name} = /* @__PURE__ */ ask('${name}')`),
    `export { ${names.map((name) => `asked_${name} as ${name}`).join(', ')} }`,
    'export default builtin',
  ].join('\n')
}
