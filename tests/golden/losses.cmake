# The first losses of the example programs, bit for bit those of the same training in Python: with Lightning Fabric where it is
# installed, else with plain PyTorch.
set(mnist_folder /usr/share/datasets/fashion-mnist)
set(wikitext ${CMAKE_SOURCE_DIR}/../shared/data/wikitext-2/valid.txt)
if(NOT EXISTS ${wikitext})
  set(wikitext generated)
endif()

function(cfabric_losses_test topic name script steps data)
  list(JOIN ARGN " " options)
  if(TARGET ${name})
    add_test(NAME golden.losses.${topic}
      COMMAND sh -c "test -x ${golden_python} || { echo 'skipped: there is no ${golden_python}'; exit 77; }; exec ${golden_python} ${CMAKE_CURRENT_SOURCE_DIR}/compare_losses.py ${golden_python} ${CMAKE_CURRENT_SOURCE_DIR}/${script} $<TARGET_FILE:${name}> ${steps} --data ${data} ${options}")
    set_tests_properties(golden.losses.${topic} PROPERTIES LABELS "golden" TIMEOUT 900 SKIP_RETURN_CODE 77)
  endif()
endfunction()

if(EXISTS ${mnist_folder})
  cfabric_losses_test(image_classifier image_classifier image_classifier.py 200 ${mnist_folder})
  cfabric_losses_test(image_classifier.epochs image_classifier image_classifier.py 15 ${mnist_folder} --epochs 3)
  cfabric_losses_test(image_classifier.bf16_mixed image_classifier image_classifier.py 100 ${mnist_folder} --precision bf16-mixed)
  cfabric_losses_test(image_classifier.ddp image_classifier image_classifier.py 100 ${mnist_folder} --devices 2 --strategy ddp)
  cfabric_losses_test(image_classifier_torch image_classifier_torch image_classifier.py 20 ${mnist_folder})
endif()
cfabric_losses_test(language_model language_model language_model.py 100 ${wikitext})
cfabric_losses_test(language_model_torch language_model_torch language_model.py 10 ${wikitext})
